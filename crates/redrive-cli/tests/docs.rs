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

/// The first config that it shows is one, and the metrics that it names are there.
#[test]
fn the_guide_to_order_shows_what_there_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| std::fs::read_to_string(root.join("docs").join(file)).unwrap();
    let guide = read("ordering.md");
    let config = guide.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ordering.yaml");
    let head = "kafka: { bootstrap.servers: localhost }\ngroup: g\n";
    std::fs::write(&file, format!("{head}{config}")).unwrap();
    let mut redrive = std::process::Command::new(trycmd::cargo::cargo_bin!("redrive"));
    let output = redrive.args(["check", "-c"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metrics = read("metrics.md");
    let is_name = |it: &&str| it.starts_with("redrive_") && !it.contains(' ');
    let mut named = guide.split('`').filter(is_name).peekable();
    assert!(named.peek().is_some());
    for name in named {
        assert!(metrics.contains(&format!("| `{name}` |")), "{name}");
    }
}
