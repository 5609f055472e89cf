//! Users get the library without debug information: with the line tables that release builds have for backtraces it is
//! ten times as large.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--strip-debug");
}
