//! What the docs show is what the commands print.

use std::path::Path;

#[test]
fn console_blocks_show_what_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::set_current_dir(&root).unwrap();
    trycmd::TestCases::new()
        .register_bin("redrive", trycmd::cargo::cargo_bin!("redrive"))
        .case("README.md")
        .case("docs/commands.md");
}
