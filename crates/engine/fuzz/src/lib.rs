//! What the fuzz targets do with their bytes. `tests/damage` does the same with drawn ones, on
//! every `make test`.

pub mod input;
pub mod random;
pub mod recovery;
pub mod sample;
pub mod tree;
