//! The picture in the docs is what the screen draws. `UPDATE_DOCS=1` writes it anew.

use std::path::Path;

#[test]
fn the_picture_is_what_the_screen_draws() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/demo.svg");
    let drawn = redrive_demo::picture();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &drawn).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == drawn,
        "docs/demo.svg is old: UPDATE_DOCS=1 cargo test --workspace --test picture"
    );
}
