//! Reads YAML 1.2 into a tree.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag};

use super::node::{Entry, Limits, MAX_DEPTH, Node, Position, Scalar, Value, insert};
use super::problem::{Path, Place, Problems};

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
    anchors: BTreeMap<usize, Node>,
    limits: Limits,
    out: &'o mut Problems,
}

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
            return Err(stop(span, "the file is nested too deeply", "64 levels are the limit"));
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
                let Some(node) = self.anchors.get(&id) else {
                    return Err(stop(
                        span,
                        "an alias has no anchor before it",
                        "define `&name` first",
                    ));
                };
                if !self.limits.take_copy(node) {
                    return Err(too_much(span));
                }
                return Ok(Node { at, value: node.value.clone() });
            }
            _ => return Err(stop(span, "the document ends in the middle", "")),
        };
        let node = Node { at, value };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
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
        let mut entries = Vec::new();
        loop {
            let (event, span) = self.next()?;
            let key = match event {
                Event::MappingEnd => return Ok(entries),
                Event::Scalar(text, ..) => text.into_owned(),
                Event::Alias(id) => match self.anchors.get(&id).map(|it| &it.value) {
                    Some(Value::Scalar(scalar)) => scalar.text.clone(),
                    _ => return Err(stop(span, "a key is not plain text", "write it out")),
                },
                _ => return Err(stop(span, "a key is not plain text", "write it as text")),
            };
            self.take(span, key.len())?;
            let (event, value_span) = self.next()?;
            let value = self.node(event, value_span, &path.key(&key), depth + 1)?;
            insert(
                &mut entries,
                Entry { key, key_at: position(span.start), value },
                path,
                self.out,
            );
        }
    }

    fn take(&mut self, span: Span, text: usize) -> Result<(), Stop> {
        if self.limits.take(text) { Ok(()) } else { Err(too_much(span)) }
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
                "the tag `{}{}` is not known",
                tag.handle.escape_debug(),
                tag.suffix.escape_debug()
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

fn too_much(span: Span) -> Stop {
    stop(span, "the file is too much when its aliases are written out", "use fewer aliases")
}

fn not_yaml(error: &ScanError) -> Stop {
    Stop {
        at: position(*error.marker()),
        message: format!("this is not YAML: {}", error.info()),
        hint: "look at the indentation and the quotes just before this place",
    }
}

fn position(marker: Marker) -> Position {
    let from_1 = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Position { line: from_1(marker.line()).max(1), column: from_1(marker.col()).saturating_add(1) }
}
