//! Gives the library its SONAME: a program that was linked by path keeps that path without one, and then does not find the
//! library elsewhere. The name gets a number with the first interface that stays compatible for good. The profile decides
//! about symbols: the release profile strips them all.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtidecast.so");
}
