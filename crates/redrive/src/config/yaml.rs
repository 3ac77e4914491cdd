//! Reads YAML 1.2 into a tree.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag};

use super::node::{Entries, Entry, Limits, MAX_DEPTH, Node, Position, Scalar, Value};
use super::problem::{Path, Place, Problems, show_key};

/// The tree of the one document in `text`. Without one, the problems say why.
pub(super) fn parse(text: &str, out: &mut Problems) -> Option<Node> {
    let mut builder = Builder {
        parser: Parser::new_from_str(text),
        anchors: BTreeMap::new(),
        limits: Limits::new(),
        out,
    };
    match builder.document() {
        Ok(node) => Some(node),
        Err(stop) => {
            out.error(Place::new(&Path::Root, stop.at), stop.message, stop.hint);
            None
        }
    }
}

struct Builder<'a, 'o> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    anchors: BTreeMap<usize, Anchor>,
    limits: Limits,
    out: &'o mut Problems,
}

/// A value that an alias may stand for.
struct Anchor {
    node: Node,
    depth: usize,
}

const TOO_DEEP: &str = "the file is nested too deeply";
const DEPTH_HINT: &str = "64 levels are the limit";

/// Why nothing more can be read.
struct Stop {
    at: Position,
    message: String,
    hint: &'static str,
}

impl Builder<'_, '_> {
    fn document(&mut self) -> Result<Node, Stop> {
        let empty = Node {
            at: Position { line: 1, column: 1 },
            value: Value::Scalar(Scalar { text: String::new(), plain: true }),
        };
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(root.unwrap_or(empty)),
                Event::DocumentStart(_) if root.is_some() => {
                    return Err(stop(
                        span,
                        "the file has more than one document",
                        "keep one: split it at `---`",
                    ));
                }
                Event::Nothing
                | Event::StreamStart
                | Event::DocumentStart(_)
                | Event::DocumentEnd => {}
                other => root = Some(self.node(other, span, &Path::Root, 0)?),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'static>, Span), Stop> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((into_owned(event), span)),
            Some(Err(error)) => Err(not_yaml(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn node(
        &mut self,
        event: Event<'static>,
        span: Span,
        path: &Path<'_>,
        depth: usize,
    ) -> Result<Node, Stop> {
        if depth > MAX_DEPTH {
            return Err(stop(span, TOO_DEEP, DEPTH_HINT));
        }
        let at = position(span.start);
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.take(span, text.len())?;
                let plain = style == ScalarStyle::Plain && !is_text(tag.as_deref(), span)?;
                (Value::Scalar(Scalar { text: text.into_owned(), plain }), anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                is_text(tag.as_deref(), span)?;
                self.take(span, 0)?;
                (Value::List(self.items(path, depth)?), anchor)
            }
            Event::MappingStart(anchor, tag) => {
                is_text(tag.as_deref(), span)?;
                self.take(span, 0)?;
                (Value::Map(self.entries(path, depth)?), anchor)
            }
            Event::Alias(id) => {
                // An alias inside its own anchor finds nothing: a tree has no loops.
                let Some(anchor) = self.anchors.get(&id) else {
                    return Err(stop(
                        span,
                        "an alias stands inside its own anchor",
                        "write it out",
                    ));
                };
                if depth + anchor.depth > MAX_DEPTH {
                    return Err(stop(span, TOO_DEEP, DEPTH_HINT));
                }
                if !self.limits.take_copy(&anchor.node) {
                    return Err(self.too_much(span));
                }
                return Ok(Node { at, value: anchor.node.value.clone() });
            }
            _ => return Err(stop(span, "the document ends in the middle", "")),
        };
        let node = Node { at, value };
        self.anchor(anchor, &node, span)?;
        Ok(node)
    }

    /// Remembers a value that an alias may stand for.
    fn anchor(&mut self, anchor: usize, node: &Node, span: Span) -> Result<(), Stop> {
        if anchor > 0 {
            // The copy counts: anchors around anchors would make many of them.
            if !self.limits.take_copy(node) {
                return Err(self.too_much(span));
            }
            self.anchors.insert(anchor, Anchor { node: node.clone(), depth: node.depth() });
        }
        Ok(())
    }

    fn items(&mut self, path: &Path<'_>, depth: usize) -> Result<Vec<Node>, Stop> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(items);
            }
            let item = self.node(event, span, &path.index(items.len()), depth + 1)?;
            items.push(item);
        }
    }

    fn entries(&mut self, path: &Path<'_>, depth: usize) -> Result<Vec<Entry>, Stop> {
        let mut entries = Entries::default();
        loop {
            let (event, span) = self.next()?;
            let key = match event {
                Event::MappingEnd => return Ok(entries.into_list()),
                Event::Scalar(text, _, anchor, _) => {
                    let key = text.into_owned();
                    let value = Value::Scalar(Scalar { text: key.clone(), plain: false });
                    self.anchor(anchor, &Node { at: position(span.start), value }, span)?;
                    key
                }
                Event::Alias(id) => match self.anchors.get(&id).map(|it| &it.node.value) {
                    Some(Value::Scalar(scalar)) => scalar.text.clone(),
                    _ => return Err(stop(span, "a key is not plain text", "write it out")),
                },
                _ => return Err(stop(span, "a key is not plain text", "write it as text")),
            };
            self.take(span, key.len())?;
            let (event, value_span) = self.next()?;
            let value = self.node(event, value_span, &path.key(&key), depth + 1)?;
            entries.add(Entry { key, key_at: position(span.start), value }, path, self.out);
        }
    }

    fn too_much(&self, span: Span) -> Stop {
        let message = "the file has more than 500,000 values or 8 MiB of text";
        if self.anchors.is_empty() {
            return stop(span, message, "split it into several configs");
        }
        stop(span, format!("{message}, with its aliases written out"), "use fewer of them")
    }

    fn take(&mut self, span: Span, text: usize) -> Result<(), Stop> {
        if self.limits.take(text) { Ok(()) } else { Err(self.too_much(span)) }
    }
}

/// Whether a tag says that the value is text. Tags that mean something to others are refused.
fn is_text(tag: Option<&Tag>, span: Span) -> Result<bool, Stop> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.is_yaml_core_schema() => Ok(tag.suffix == "str"),
        Some(tag) => Err(stop(
            span,
            format!(
                "the tag `{}` is not known",
                show_key(&format!("{}{}", tag.handle, tag.suffix))
            ),
            "leave it out",
        )),
    }
}

fn into_owned(event: Event<'_>) -> Event<'static> {
    let tag = |tag: Option<std::borrow::Cow<'_, Tag>>| {
        tag.map(|it| std::borrow::Cow::<'static, Tag>::Owned(it.into_owned()))
    };
    match event {
        Event::Scalar(text, style, anchor, it) => {
            Event::Scalar(text.into_owned().into(), style, anchor, tag(it))
        }
        Event::SequenceStart(anchor, it) => Event::SequenceStart(anchor, tag(it)),
        Event::MappingStart(anchor, it) => Event::MappingStart(anchor, tag(it)),
        Event::Nothing => Event::Nothing,
        Event::StreamStart => Event::StreamStart,
        Event::StreamEnd => Event::StreamEnd,
        Event::DocumentStart(explicit) => Event::DocumentStart(explicit),
        Event::DocumentEnd => Event::DocumentEnd,
        Event::Alias(id) => Event::Alias(id),
        Event::SequenceEnd => Event::SequenceEnd,
        Event::MappingEnd => Event::MappingEnd,
    }
}

fn stop(span: Span, message: impl Into<String>, hint: &'static str) -> Stop {
    Stop { at: position(span.start), message: message.into(), hint }
}

fn not_yaml(error: &ScanError) -> Stop {
    let at = position(*error.marker());
    if error.info().contains("unknown anchor") {
        let message = "an alias has no anchor before it".to_owned();
        return Stop { at, message, hint: "define it first: `&name` before the value" };
    }
    if error.info().contains("recursion limit") {
        return Stop { at, message: TOO_DEEP.to_owned(), hint: DEPTH_HINT };
    }
    Stop {
        at,
        message: format!("this is not YAML: {}", error.info()),
        hint: "look at the indentation and the quotes just before this place; inside `{ }` and `[ ]` a `${NAME}` needs quotes",
    }
}

fn position(marker: Marker) -> Position {
    let from_1 = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Position { line: from_1(marker.line()).max(1), column: from_1(marker.col()).saturating_add(1) }
}
