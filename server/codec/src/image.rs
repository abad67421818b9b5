//! State images, encoded as pieces: first a plan, then slices of each column. Pieces are encoded and decoded one at a
//! time, so the encoded image is never in memory as a whole.

use tribunal_types::image::{Blob, Column};
use tribunal_types::{Epoch, StateImage};

use crate::reader::{Malformed, Reader};
use crate::section::{put_section, take_section};
use crate::varint::{put_delta, put_varint};
use crate::{Kind, put_head, take_head};

/// Maximum number of words in one piece.
const WORDS_PER_PIECE: usize = 64 * 1024;
/// Maximum number of bytes in one piece of a blob.
const BYTES_PER_PIECE: usize = 512 * 1024;
/// Number of words after which delta encoding is evaluated: a column has rows of one kind, so its beginning is
/// representative.
const DELTAS_TRIED: usize = 1024;
/// Maximum number of columns in an image.
const COLUMNS_MAX: usize = 1024;

const PLAN: u8 = 0;
const PLAIN: u8 = 1;
const DELTAS: u8 = 2;
const BYTES: u8 = 3;

/// Returns the pieces of an image, in order.
pub fn image_pieces(image: &StateImage) -> impl Iterator<Item = Vec<u8>> + '_ {
    let words = image.columns.iter().flat_map(|column| column.words.chunks(WORDS_PER_PIECE).map(words_piece));
    let bytes = image.blobs.iter().flat_map(|blob| blob.bytes.chunks(BYTES_PER_PIECE).map(bytes_piece));
    std::iter::once(plan_piece(image)).chain(words).chain(bytes)
}

fn plan_piece(image: &StateImage) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    put_head(Kind::Image, &mut out);
    out.push(PLAN);
    put_varint(image.epoch.0, &mut out);
    put_varint(image.columns.len() as u64, &mut out);
    for column in &image.columns {
        put_varint(u64::from(column.id), &mut out);
        put_varint(column.words.len() as u64, &mut out);
    }
    put_varint(image.blobs.len() as u64, &mut out);
    for blob in &image.blobs {
        put_varint(u64::from(blob.id), &mut out);
        put_varint(blob.bytes.len() as u64, &mut out);
    }
    out
}

/// Encodes words as deltas if that is shorter; for hashes it is not.
fn words_piece(words: &[u64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + size_of_val(words));
    put_head(Kind::Image, &mut out);
    let mut raw = Vec::with_capacity(size_of_val(words) + 2 * DELTAS_TRIED);
    if put_deltas(words, &mut raw) {
        out.push(DELTAS);
    } else {
        out.push(PLAIN);
        raw.clear();
        words.iter().for_each(|word| raw.extend_from_slice(&word.to_le_bytes()));
    }
    put_section(&raw, &mut out);
    out
}

/// Appends words as deltas; gives up and returns `false` once they are no shorter than the words.
fn put_deltas(words: &[u64], out: &mut Vec<u8>) -> bool {
    let mut before = 0;
    for (done, some) in words.chunks(DELTAS_TRIED).enumerate() {
        for word in some {
            put_delta(before, *word, out);
            before = *word;
        }
        if out.len() >= 8 * (done * DELTAS_TRIED + some.len()) {
            return false;
        }
    }
    !words.is_empty()
}

fn bytes_piece(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + bytes.len());
    put_head(Kind::Image, &mut out);
    out.push(BYTES);
    put_section(bytes, &mut out);
    out
}

/// Reassembles an image from its pieces.
#[derive(Debug, Default)]
pub struct ImageAssembler {
    image: Option<StateImage>,
    /// Lengths of columns and blobs, as planned.
    words_planned: Vec<usize>,
    bytes_planned: Vec<usize>,
    column: usize,
    blob: usize,
}

impl ImageAssembler {
    /// Creates an assembler that expects the first piece.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next piece.
    ///
    /// # Errors
    /// If the bytes are not a piece, or not the next one.
    pub fn add(&mut self, piece: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(piece);
        take_head(Kind::Image, &mut reader)?;
        match (reader.u8("kind of piece")?, self.image.is_some()) {
            (PLAN, false) => self.plan(&mut reader)?,
            (kind @ (PLAIN | DELTAS), true) => self.words(&mut reader, kind)?,
            (BYTES, true) => self.bytes(&mut reader)?,
            _ => return Err(reader.malformed("kind of piece")),
        }
        reader.finish("end of piece")
    }

    /// Returns the image.
    ///
    /// # Errors
    /// If pieces are missing.
    pub fn finish(mut self) -> Result<StateImage, Malformed> {
        self.skip_full();
        let missing = Malformed { what: "image ends early", at: self.column };
        match self.image {
            Some(image) if self.column == image.columns.len() && self.blob == image.blobs.len() => Ok(image),
            _ => Err(missing),
        }
    }

    fn plan(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        let mut image = StateImage { epoch: Epoch(reader.varint("epoch")?), ..StateImage::default() };
        let count = reader.count(2, "columns")?;
        if count > COLUMNS_MAX {
            return Err(reader.malformed("columns"));
        }
        for _ in 0..count {
            image.columns.push(Column { id: reader.number("column")?, words: Vec::new() });
            self.words_planned.push(reader.number("length of column")?);
        }
        let count = reader.count(2, "columns of bytes")?;
        if count > COLUMNS_MAX {
            return Err(reader.malformed("columns of bytes"));
        }
        for _ in 0..count {
            image.blobs.push(Blob { id: reader.number("column of bytes")?, bytes: Vec::new() });
            self.bytes_planned.push(reader.number("length of column of bytes")?);
        }
        self.image = Some(image);
        Ok(())
    }

    /// Skips to the first column that is not complete.
    fn skip_full(&mut self) {
        let Some(image) = &self.image else { return };
        while self.column < image.columns.len()
            && image.columns[self.column].words.len() == self.words_planned[self.column]
        {
            self.column += 1;
        }
        while self.blob < image.blobs.len() && image.blobs[self.blob].bytes.len() == self.bytes_planned[self.blob] {
            self.blob += 1;
        }
    }

    fn words(&mut self, reader: &mut Reader<'_>, kind: u8) -> Result<(), Malformed> {
        self.skip_full();
        let section = take_section(reader, "words")?;
        let column = self.image.as_mut().and_then(|image| image.columns.get_mut(self.column));
        let column = column.ok_or_else(|| reader.malformed("a column too many"))?;
        let missing = self.words_planned[self.column] - column.words.len();
        let mut words = Reader::new(&section);
        let mut before = 0;
        for _ in 0..missing.min(WORDS_PER_PIECE) {
            before = if kind == PLAIN { words.u64_le("word")? } else { words.delta(before, "word")? };
            column.words.push(before);
        }
        words.finish("end of words")
    }

    fn bytes(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        self.skip_full();
        let section = take_section(reader, "bytes")?;
        let blob = self.image.as_mut().and_then(|image| image.blobs.get_mut(self.blob));
        let blob = blob.ok_or_else(|| reader.malformed("a column of bytes too many"))?;
        let missing = self.bytes_planned[self.blob] - blob.bytes.len();
        if section.len() != missing.min(BYTES_PER_PIECE) {
            return Err(reader.malformed("bytes"));
        }
        blob.bytes.extend_from_slice(&section);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> StateImage {
        let mut image = StateImage { epoch: Epoch(12), ..StateImage::default() };
        image.push_words(1, (0..200_000).map(|n| n * 3).collect());
        image.push_words(2, Vec::new());
        image.push_words(3, (0..70_000_u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect());
        image.push_bytes(4, vec![7; 1_200_000]);
        image.push_bytes(5, Vec::new());
        image
    }

    fn assemble(pieces: &[Vec<u8>]) -> Result<StateImage, Malformed> {
        let mut assembler = ImageAssembler::new();
        pieces.iter().try_for_each(|piece| assembler.add(piece))?;
        assembler.finish()
    }

    #[test]
    fn an_image_survives_a_round_trip_and_missing_or_duplicate_pieces_are_rejected() {
        for image in [StateImage::default(), image()] {
            let pieces: Vec<_> = image_pieces(&image).collect();
            assert_eq!(assemble(&pieces).as_ref(), Ok(&image));
            for ix in 0..pieces.len() {
                let mut fewer = pieces.clone();
                let piece = fewer.remove(ix);
                assert!(assemble(&fewer).is_err(), "piece {ix} of {} missing", pieces.len());
                fewer.insert(ix, piece.clone());
                fewer.push(piece);
                assert!(assemble(&fewer).is_err(), "piece {ix} twice");
            }
        }
    }
}
