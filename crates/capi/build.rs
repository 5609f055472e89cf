//! Gives the library its SONAME: without one, a program that was linked by path records that path, and does
//! not find the library elsewhere. The name gets a number with the first stable interface. The profile
//! decides about symbols: the release profile strips them all.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtidecast.so");
}
