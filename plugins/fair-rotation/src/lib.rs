//! tribunal-plugin-fair-rotation
