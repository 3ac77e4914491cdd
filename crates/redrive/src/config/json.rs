//! Reads JSON into a tree, with the comments and trailing commas that .NET allows in its settings.

use super::node::{Entries, Entry, Limits, MAX_DEPTH, Node, Position, Scalar, Value};
use super::problem::{Path, Place, Problems};

/// The tree of the one value in `text`. Without one, the problems say why.
pub(super) fn parse(text: &str, out: &mut Problems) -> Option<Node> {
    let mut reader =
        Reader { rest: text, at: Position { line: 1, column: 1 }, limits: Limits::new(), out };
    let result = reader.value(&Path::Root, 0).and_then(|node| {
        reader.skip_space()?;
        if reader.rest.is_empty() {
            Ok(node)
        } else {
            Err(reader.unexpected("the end of the file"))
        }
    });
    match result {
        Ok(node) => Some(node),
        Err(Stop { at, message }) => {
            let is_syntax = message.starts_with(NOT_JSON);
            let hint = if is_syntax { SYNTAX_HINT } else { "split it into several configs" };
            out.error(Place::new(&Path::Root, at), message, hint);
            None
        }
    }
}

const NOT_JSON: &str = "this is not JSON";
const SYNTAX_HINT: &str = "look at the commas, quotes and brackets just before this place";

struct Reader<'a, 'o> {
    rest: &'a str,
    at: Position,
    limits: Limits,
    out: &'o mut Problems,
}

/// Why nothing more can be read.
struct Stop {
    at: Position,
    message: String,
}

impl Reader<'_, '_> {
    fn value(&mut self, path: &Path<'_>, depth: usize) -> Result<Node, Stop> {
        self.skip_space()?;
        let at = self.at;
        if depth > MAX_DEPTH {
            return Err(self.stop("the file is nested too deeply: 64 levels are the limit"));
        }
        if !self.limits.take(0) {
            return Err(self.stop("the file has more than 500,000 values"));
        }
        let value = match self.peek() {
            Some('{') => Value::Map(self.entries(path, depth)?),
            Some('[') => Value::List(self.items(path, depth)?),
            Some('"') => Value::Scalar(Scalar { text: self.string()?, plain: false }),
            Some('-' | '0'..='9' | 't' | 'f' | 'n') => {
                Value::Scalar(Scalar { text: self.literal()?, plain: true })
            }
            _ => return Err(self.unexpected("a value")),
        };
        Ok(Node { at, value })
    }

    fn entries(&mut self, path: &Path<'_>, depth: usize) -> Result<Vec<Entry>, Stop> {
        let mut entries = Entries::default();
        self.bump();
        loop {
            self.skip_space()?;
            match self.peek() {
                Some('}') => {
                    self.bump();
                    return Ok(entries.into_list());
                }
                Some('"') => {}
                _ => return Err(self.unexpected("a key in quotes or `}`")),
            }
            let key_at = self.at;
            let key = self.string()?;
            self.skip_space()?;
            if !self.take(':') {
                return Err(self.unexpected("`:`"));
            }
            let value = self.value(&path.key(&key), depth + 1)?;
            entries.add(Entry { key, key_at, value }, path, self.out);
            self.comma_or('}')?;
        }
    }

    fn items(&mut self, path: &Path<'_>, depth: usize) -> Result<Vec<Node>, Stop> {
        let mut items = Vec::new();
        self.bump();
        loop {
            self.skip_space()?;
            if self.take(']') {
                return Ok(items);
            }
            let item = self.value(&path.index(items.len()), depth + 1)?;
            items.push(item);
            self.comma_or(']')?;
        }
    }

    /// Takes a comma, or sees that the bracket comes next.
    fn comma_or(&mut self, close: char) -> Result<(), Stop> {
        self.skip_space()?;
        if self.take(',') || self.peek() == Some(close) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`,` or `{close}`")))
    }

    fn literal(&mut self) -> Result<String, Stop> {
        let at = self.at;
        let end = self
            .rest
            .find(|it: char| !it.is_ascii_alphanumeric() && !"+-.".contains(it))
            .unwrap_or(self.rest.len());
        let text = self.rest[..end].to_owned();
        for _ in text.chars() {
            self.bump();
        }
        if matches!(text.as_str(), "true" | "false" | "null") || is_number(&text) {
            return Ok(text);
        }
        let shown = super::problem::show_key(&text);
        Err(Stop {
            at,
            message: format!(
                "this is not JSON: `{shown}` is neither a number nor true, false or null"
            ),
        })
    }

    fn string(&mut self) -> Result<String, Stop> {
        let mut text = String::new();
        self.bump();
        loop {
            match self.peek() {
                None => return Err(self.unexpected("the closing quote")),
                Some('"') => {
                    self.bump();
                    break;
                }
                Some('\\') => {
                    self.bump();
                    text.push(self.escaped()?);
                }
                Some(it) if it < ' ' => {
                    return Err(self.stop("this is not JSON: a control character in a text"));
                }
                Some(it) => {
                    text.push(it);
                    self.bump();
                }
            }
        }
        if self.limits.take(text.len()) {
            Ok(text)
        } else {
            Err(self.stop("the file has more than 8 MiB of text"))
        }
    }

    fn escaped(&mut self) -> Result<char, Stop> {
        let Some(it) = self.peek() else {
            return Err(self.unexpected("the rest of an escape"));
        };
        self.bump();
        Ok(match it {
            '"' | '\\' | '/' => it,
            'b' => '\u{8}',
            'f' => '\u{C}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => return self.unicode(),
            _ => return Err(self.stop("this is not JSON: an escape that is not known")),
        })
    }

    /// The four digits after `\u`, and the second half of a pair where it needs one.
    fn unicode(&mut self) -> Result<char, Stop> {
        let wrong = "this is not JSON: `\\u` without a character";
        let first = self.hex()?;
        let code = if (0xD800..0xDC00).contains(&first) {
            if !(self.take('\\') && self.take('u')) {
                return Err(self.stop(wrong));
            }
            let second = self.hex()?;
            if !(0xDC00..0xE000).contains(&second) {
                return Err(self.stop(wrong));
            }
            0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
        } else {
            first
        };
        char::from_u32(code).ok_or_else(|| self.stop(wrong))
    }

    fn hex(&mut self) -> Result<u32, Stop> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|it| it.to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.unexpected("four hexadecimal digits"))?;
            self.bump();
        }
        Ok(code)
    }

    fn skip_space(&mut self) -> Result<(), Stop> {
        loop {
            if self.rest.starts_with("//") {
                while self.peek().is_some_and(|it| it != '\n') {
                    self.bump();
                }
            } else if self.rest.starts_with("/*") {
                let start = self.at;
                while !self.rest.starts_with("*/") {
                    if self.rest.is_empty() {
                        let message = "this is not JSON: a comment that does not end".to_owned();
                        return Err(Stop { at: start, message });
                    }
                    self.bump();
                }
                self.bump();
                self.bump();
            } else if matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r')) {
                self.bump();
            } else {
                return Ok(());
            }
        }
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn take(&mut self, it: char) -> bool {
        let is_next = self.peek() == Some(it);
        if is_next {
            self.bump();
        }
        is_next
    }

    fn bump(&mut self) {
        let mut chars = self.rest.chars();
        match chars.next() {
            Some('\n') => self.at = Position { line: self.at.line + 1, column: 1 },
            Some(_) => self.at.column += 1,
            None => {}
        }
        self.rest = chars.as_str();
    }

    fn unexpected(&self, wanted: &str) -> Stop {
        let found = match self.peek() {
            Some(it) => super::node::quoted(&it.to_string()).into_owned(),
            None => "the end of the file".to_owned(),
        };
        self.stop(format!("this is not JSON: {wanted} should be here, but here is {found}"))
    }

    fn stop(&self, message: impl Into<String>) -> Stop {
        Stop { at: self.at, message: message.into() }
    }
}

/// A number as JSON writes it: no leading zeros, digits on both sides of the point.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    are_digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(are_digits)
        && exponent.is_none_or(|it| are_digits(it.strip_prefix(['-', '+']).unwrap_or(it)))
}
