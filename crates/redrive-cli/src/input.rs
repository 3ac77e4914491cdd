//! Reading a config from a file or from standard input.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use redrive::config::{Config, FlowConfig, Loaded, Options, Syntax};

use crate::args::ConfigArgs;

/// A little more than a config may have: enough to see that it is too long.
const MAX_BYTES: u64 = (1 << 20) + 16;

/// A file as it is named in messages, and what was found in it.
pub struct Input {
    pub name: String,
    pub loaded: Loaded,
}

/// Reads the config and everything that is wrong with it.
pub fn load(file: &Path, topic: Option<&str>, group: Option<&str>) -> anyhow::Result<Input> {
    let is_stdin = file == Path::new("-");
    let name = if is_stdin { "standard input".to_owned() } else { file.display().to_string() };
    let mut bytes = Vec::new();
    let result = if is_stdin {
        std::io::stdin().lock().take(MAX_BYTES).read_to_end(&mut bytes)
    } else {
        File::open(file).and_then(|it| it.take(MAX_BYTES).read_to_end(&mut bytes))
    };
    result.with_context(|| format!("cannot read {name}"))?;
    // A file that is too long may be cut in the middle of a character; its length is told below.
    let too_long = bytes.len() as u64 == MAX_BYTES;
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if too_long => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            bail!("cannot read {name}: it is not UTF-8 text (byte {at})")
        }
    };
    let syntax = Syntax::of(&name, &text);
    let env = |variable: &str| std::env::var(variable).ok();
    let options = Options { topic, group, env: &env };
    let loaded =
        Config::load(&text, syntax, &options).with_context(|| format!("cannot use {name}"))?;
    Ok(Input { name, loaded })
}

/// The flow that is meant: the one of `topic`, or the only one.
pub fn choose<'a>(config: &'a Config, topic: Option<&str>) -> anyhow::Result<&'a FlowConfig> {
    let known = || {
        let topics: Vec<_> = config.flows.iter().map(|it| &**it.flow.source()).collect();
        topics.join(", ")
    };
    match (topic, config.flows.as_slice()) {
        (None, [flow]) => Ok(flow),
        (None, _) => {
            bail!("the config has several flows: choose one with --topic (known: {})", known())
        }
        (Some(topic), _) => config
            .flow(topic)
            .with_context(|| format!("no flow has the topic `{topic}` (known: {})", known())),
    }
}

impl ConfigArgs {
    pub fn load(&self) -> anyhow::Result<Input> {
        load(&self.file.config, self.topic.as_deref(), None)
    }
}
