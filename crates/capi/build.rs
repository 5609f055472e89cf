//! Users get the library without debug information: with the line tables that release builds have for backtraces it is
//! ten times as large. Programs find it by its name, wherever it lay when they were linked: without a SONAME one that was
//! linked by path keeps that path. The name gets a number with the first interface that is kept for good.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--strip-debug");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtidecast.so");
}
