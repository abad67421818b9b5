//! Bytes of keys and values, one after the other in large chunks, freed all at once.

/// Size of the first chunk; each further one is as large as all before, up to [`CHUNK_BYTES_MAX`].
const CHUNK_BYTES_MIN: usize = 16 * 1024;
/// Size of a chunk, unless one piece is larger.
const CHUNK_BYTES_MAX: usize = 1024 * 1024;

/// Where bytes are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    chunk: u32,
    offset: u32,
    len: u32,
}

/// The bytes.
#[derive(Default)]
pub(super) struct Arena {
    chunks: Vec<Vec<u8>>,
    /// Bytes in use, replaced ones among them.
    bytes: usize,
}

impl Arena {
    /// Returns the bytes in use, replaced ones among them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies bytes in. They are at most as long as a value may be, so that they fit 32 bits.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Piece {
        let fits = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() >= bytes.len();
        if !self.chunks.last().is_some_and(fits) {
            let size = self.bytes.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX).max(bytes.len());
            self.chunks.push(Vec::with_capacity(size));
        }
        let chunk = self.chunks.len() - 1;
        let offset = self.chunks[chunk].len();
        self.chunks[chunk].extend_from_slice(bytes);
        self.bytes += bytes.len();
        Piece { chunk: chunk as u32, offset: offset as u32, len: bytes.len() as u32 }
    }

    /// Puts `bytes` in the place of `old`, or elsewhere if they are longer.
    pub(super) fn replace(&mut self, old: Piece, bytes: &[u8]) -> Piece {
        if bytes.len() > old.len as usize {
            return self.push(bytes);
        }
        let piece = Piece { len: bytes.len() as u32, ..old };
        let at = piece.offset as usize;
        if !bytes.is_empty() {
            self.chunks[piece.chunk as usize][at..at + bytes.len()].copy_from_slice(bytes);
        }
        piece
    }

    /// Returns the bytes of a piece.
    pub(super) fn get(&self, piece: Piece) -> &[u8] {
        if piece.len == 0 {
            return &[];
        }
        let at = piece.offset as usize;
        &self.chunks[piece.chunk as usize][at..at + piece.len as usize]
    }
}
