//! An arena for keys and values: bytes are appended to large chunks and freed all at once.

/// Size of the first chunk. Each further chunk is as large as all previous ones together, up to [`CHUNK_BYTES_MAX`].
const CHUNK_BYTES_MIN: usize = 16 * 1024;
/// Maximum size of a chunk, unless a single piece is larger.
const CHUNK_BYTES_MAX: usize = 1024 * 1024;

/// Location of bytes in the arena.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    chunk: u32,
    offset: u32,
    len: u32,
}

/// The arena.
#[derive(Default)]
pub(super) struct Arena {
    chunks: Vec<Vec<u8>>,
    /// Bytes in use, including replaced ones.
    bytes: usize,
}

impl Piece {
    /// Returns the number of bytes.
    pub(super) fn len(self) -> usize {
        self.len as usize
    }
}

impl Arena {
    /// Returns the bytes in use, including replaced ones.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a copy of `bytes`, whose length is bounded by that of a value and thus fits 32 bits.
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

    /// Overwrites `old` with `bytes`, or appends them if they are longer.
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
