//! Records as they lie on disk and travel between nodes: whatever decodes comes back the same when it is encoded again.

use tribunal_codec::{
    ImageAssembler, Malformed, batch_head, decode_batch, decode_control, decode_control_image, decode_group_cursors,
    decode_group_record, decode_mark, decode_outcome, decode_readers, encode_batch, encode_control,
    encode_control_image, encode_group_cursors, encode_group_record, encode_mark, encode_outcome, encode_readers,
    image_pieces,
};
use tribunal_types::{Epoch, GroupId, NamespaceId, RowKey, StoreId};

/// Epoch that outcomes are taken for.
const EPOCH: Epoch = Epoch(77);

/// A keyer that can be told from a real one.
fn keyer(namespace: NamespaceId, store: StoreId, key: &[u8]) -> RowKey {
    let sum = key.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    RowKey { hi: sum, lo: u64::from(namespace.0) << 32 | u64::from(store.0) }
}

/// Decodes the record that the first byte says it is; tells whether it is one.
pub fn run(data: &[u8]) -> bool {
    let refused = match data.first() {
        Some(0xB1) => batch(data),
        Some(0xB2) => outcome(data),
        Some(0xB3) => decode_control(data).map(|entry| {
            assert_eq!(decode_control(&encode_control(&entry)), Ok(entry));
        }),
        Some(0xB4) => image(data),
        Some(0xB5) => decode_mark(data).map(|mark| assert_eq!(decode_mark(&encode_mark(&mark)), Ok(mark))),
        Some(0xB6) => {
            decode_readers(data).map(|readers| assert_eq!(decode_readers(&encode_readers(&readers)), Ok(readers)))
        }
        Some(0xB7) => decode_control_image(data).map(|state| {
            assert_eq!(decode_control_image(&encode_control_image(&state)), Ok(state));
        }),
        Some(0xB8) => decode_group_record(data).map(|record| {
            assert_eq!(decode_group_record(&encode_group_record(&record)), Ok(record));
        }),
        Some(0xB9) => decode_group_cursors(data).map(|cursors| {
            assert_eq!(decode_group_cursors(&encode_group_cursors(&cursors)), Ok(cursors));
        }),
        // No decoder takes a record of another kind for its own.
        _ => {
            assert!(decode_batch(data, GroupId::default(), &keyer).is_err() && batch_head(data).is_err());
            assert!(decode_outcome(data, EPOCH).is_err() && decode_control(data).is_err());
            assert!(decode_control_image(data).is_err());
            assert!(decode_mark(data).is_err() && decode_readers(data).is_err());
            assert!(decode_group_record(data).is_err() && decode_group_cursors(data).is_err());
            ImageAssembler::new().add(data)
        }
    };
    refused.map_err(|malformed| assert!(!malformed.what.is_empty(), "an error says what is wrong")).is_ok()
}

fn batch(data: &[u8]) -> Result<(), Malformed> {
    let batch = decode_batch(data, GroupId::default(), &keyer)?;
    let head = batch_head(data)?;
    assert_eq!((head.first, head.last, head.control), (batch.first, batch.last, batch.control));
    let mut bytes = Vec::new();
    encode_batch(&batch, &mut bytes);
    assert_eq!(decode_batch(&bytes, GroupId::default(), &keyer), Ok(batch));
    Ok(())
}

fn outcome(data: &[u8]) -> Result<(), Malformed> {
    let outcome = decode_outcome(data, EPOCH)?;
    let mut bytes = Vec::new();
    encode_outcome(&outcome, &mut bytes);
    assert_eq!(decode_outcome(&bytes, EPOCH), Ok(outcome));
    Ok(())
}

/// Pieces, each preceded by its length in two bytes.
fn image(data: &[u8]) -> Result<(), Malformed> {
    let mut assembler = ImageAssembler::new();
    // The kind byte means an image; the pieces follow it.
    let mut rest = &data[1..];
    while let Some((len, tail)) = rest.split_first_chunk::<2>() {
        let (piece, more) = tail.split_at(usize::from(u16::from_le_bytes(*len)).min(tail.len()));
        assembler.add(piece)?;
        rest = more;
    }
    let image = assembler.finish()?;
    let mut again = ImageAssembler::new();
    for piece in image_pieces(&image) {
        again.add(&piece)?;
    }
    assert_eq!(again.finish(), Ok(image));
    Ok(())
}
