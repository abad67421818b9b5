//! A small rule in WebAssembly text.

use crate::hostile::Hostile;

/// A rule that ranks the later arrival first.
pub fn last_one_wins() -> Vec<u8> {
    let rank = "(local $i i32) (local $at i32)
        (block $done (loop $next
            (br_if $done (i32.ge_u (local.get $i) (local.get $csns)))
            (local.set $at (i32.add (local.get $csn) (i32.shl (local.get $i) (i32.const 3))))
            (i64.store (local.get $at) (i64.sub (i64.const -1) (i64.load (local.get $at))))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br $next)))
        (i32.store (i32.const 516) (local.get $csn)) (i32.store (i32.const 520) (local.get $csns))
        (i32.store (i32.const 524) (local.get $csn)) (i32.store (i32.const 528) (local.get $csns))
        (i32.const 512)";
    // Room for the kit's largest batches.
    Hostile { rank, pages: 64, ..Hostile::default() }.component()
}
