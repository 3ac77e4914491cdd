//! Cutting text to a length that a header may have.

/// The beginning of `text`, at most `max` bytes long and never in the middle of a character.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}
