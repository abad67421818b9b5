//! The fuel that instructions cost.

use wasmtime::OperatorCost;

/// Costs of instructions. A unit is about the work of an addition; slower instructions cost more, so that fuel bounds
/// time within a small factor.
pub(crate) fn operator_cost() -> OperatorCost {
    let mut cost = OperatorCost::new();
    for slow in [
        &mut cost.I32DivS,
        &mut cost.I32DivU,
        &mut cost.I32RemS,
        &mut cost.I32RemU,
        &mut cost.F32Div,
        &mut cost.F64Div,
        &mut cost.F32Sqrt,
        &mut cost.F64Sqrt,
    ] {
        *slow = 8;
    }
    for slower in [&mut cost.I64DivS, &mut cost.I64DivU, &mut cost.I64RemS, &mut cost.I64RemU] {
        *slower = 12;
    }
    for call in [&mut cost.Call, &mut cost.CallIndirect, &mut cost.BrTable] {
        *call = 4;
    }
    for bulk in [&mut cost.MemoryCopy, &mut cost.MemoryFill, &mut cost.MemoryInit, &mut cost.TableCopy] {
        *bulk = 20;
    }
    // A system call. The cost per page is low because the memory limit bounds the number of pages: a plugin that requests
    // gigabytes must hit that limit before it runs out of fuel.
    cost.MemoryGrow = 200;
    cost.TableGrow = 200;
    cost.variable.memory_grow_per_page = 8;
    cost
}
