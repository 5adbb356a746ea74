//! A tensor in the bytes that it came in.

use super::numbers::Dtype;

/// Vectors of more numbers belong to no model.
const WIDEST: usize = 1 << 20;

/// One tensor. Nothing is checked until [`Self::matrix`] and [`Self::values`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tensor<'a> {
    pub(super) dtype: Dtype,
    /// Sizes of the dimensions.
    pub(super) shape: Vec<usize>,
    /// Elements from one index of a dimension to the next.
    pub(super) strides: Vec<usize>,
    /// Elements before the first one.
    pub(super) offset: usize,
    /// Little-endian.
    pub(super) data: &'a [u8],
}

impl Tensor<'_> {
    /// Vectors, and numbers of a vector. A leading dimension of 1 does not count.
    pub(super) fn matrix(&self) -> Result<(usize, usize), String> {
        let (rows, width) = match self.shape[..] {
            [rows, width] | [1, rows, width] => (rows, width),
            _ => {
                return Err(format!(
                    "must hold a tensor of the shape [tokens, hidden size]; got {:?}",
                    self.shape
                ));
            }
        };
        if rows == 0 || width == 0 || width > WIDEST {
            return Err(format!(
                "must hold at least one vector, of at most {WIDEST} numbers; got the shape {:?}",
                self.shape
            ));
        }
        Ok((rows, width))
    }

    /// The numbers, row by row.
    pub(super) fn values(&self) -> Result<Vec<u8>, String> {
        let (rows, width) = self.matrix()?;
        let size = self.dtype.bytes();
        let total = rows.checked_mul(width).and_then(|n| n.checked_mul(size));
        // Strides of 0 would make much out of little.
        let total = total
            .filter(|total| *total <= self.data.len())
            .ok_or_else(|| {
                format!(
                    "says that its shape is {:?}, and holds {} numbers; send a contiguous tensor",
                    self.shape,
                    self.data.len() / size
                )
            })?;
        let [down, across] = match self.strides[..] {
            [down, across] | [_, down, across] if self.strides.len() == self.shape.len() => {
                [down, across]
            }
            _ => {
                return Err(format!(
                    "has strides {:?} for the shape {:?}",
                    self.strides, self.shape
                ));
            }
        };
        let mut values = Vec::with_capacity(total);
        for row in 0..rows {
            if across == 1 {
                values.extend_from_slice(self.run(self.place(row, down, 0)?, width)?);
                continue;
            }
            for column in 0..width {
                let at = self.place(row, down, column.checked_mul(across).ok_or_else(outside)?)?;
                values.extend_from_slice(self.run(at, 1)?);
            }
        }
        Ok(values)
    }

    fn place(&self, row: usize, down: usize, more: usize) -> Result<usize, String> {
        let at = row.checked_mul(down).and_then(|at| at.checked_add(more));
        at.and_then(|at| at.checked_add(self.offset))
            .ok_or_else(outside)
    }

    fn run(&self, first: usize, count: usize) -> Result<&[u8], String> {
        let size = self.dtype.bytes();
        let begin = first.checked_mul(size);
        let end = first
            .checked_add(count)
            .and_then(|end| end.checked_mul(size));
        begin
            .zip(end)
            .and_then(|(begin, end)| self.data.get(begin..end))
            .ok_or_else(outside)
    }
}

fn outside() -> String {
    "has numbers outside of its data; the file is damaged".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor<'a>(shape: &[usize], strides: &[usize], offset: usize, data: &'a [u8]) -> Tensor<'a> {
        Tensor {
            dtype: Dtype::Float16,
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            offset,
            data,
        }
    }

    #[test]
    fn reads_rows_and_columns_and_slices() {
        let data: Vec<u8> = (0..12).collect();
        let row_by_row = tensor(&[2, 3], &[3, 1], 0, &data).values().unwrap();
        assert_eq!(row_by_row, data);
        let transposed = tensor(&[3, 2], &[1, 3], 0, &data).values().unwrap();
        assert_eq!(transposed, [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        let slice = tensor(&[1, 1, 2], &[6, 3, 1], 3, &data).values().unwrap();
        assert_eq!(slice, [6, 7, 8, 9]);
    }

    #[test]
    fn refuses_what_is_not_there() {
        let data = [0; 12];
        for (shape, strides, offset) in [
            (vec![2, 3], vec![3, 1], 1),          // begins too late
            (vec![2, 3], vec![4, 1], 0),          // goes too far
            (vec![3, 2], vec![usize::MAX, 1], 0), // further than numbers go
            (vec![3, 2], vec![1, usize::MAX], 0),
            (vec![1 << 40, 8], vec![0, 0], 0), // much out of little
            (vec![usize::MAX, 8], vec![0, 0], 0),
            (vec![2, 3], vec![1], 0),
            (vec![0, 3], vec![3, 1], 0),
            (vec![2, 0], vec![0, 1], 0),
            (vec![6], vec![1], 0),
            (vec![2, 1, 3], vec![3, 3, 1], 0),
        ] {
            let read = tensor(&shape, &strides, offset, &data).values();
            assert!(read.is_err(), "{shape:?} {strides:?} {offset}: {read:?}");
        }
    }
}
