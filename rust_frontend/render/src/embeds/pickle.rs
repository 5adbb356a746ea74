//! One tensor as `torch.save` writes it: an archive with the numbers and, pickled, what they are.
//!
//! A pickle is a program that makes Python call things. This reader calls nothing: it follows the few operations that
//! describe a tensor, knows the few names that they may use, and refuses everything else.

use std::collections::HashMap;
use std::rc::Rc;

use super::archive::Archive;
use super::numbers::{Dtype, unknown};
use super::tensor::Tensor;

/// No description of one tensor is longer, and nothing in so short a program nests deeply.
const LONGEST: usize = 4096;

/// What stands on the program's stack.
#[derive(Debug, Clone)]
enum Item {
    Mark,
    /// What a tensor does not depend on.
    Nothing,
    Integer(i64),
    Text(Rc<str>),
    /// Module and name of something in Python.
    Name(Rc<str>),
    Tuple(Rc<[Item]>),
    Storage(Dtype, Rc<str>),
    Tensor(Rc<Described>),
}

/// A tensor without its numbers.
#[derive(Debug)]
struct Described {
    dtype: Dtype,
    /// Of the file with its numbers.
    key: Rc<str>,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

pub(super) fn read(bytes: &[u8]) -> Result<Tensor<'_>, String> {
    let archive = Archive::open(bytes)?;
    let folder = archive.folder(b"data.pkl");
    let folder = folder.ok_or("is an archive without data.pkl: torch.save did not make it")?;
    let named = |name: &str| archive.read(&[folder, name.as_bytes()].concat());
    let program = named("data.pkl")?.unwrap_or_default();
    if program.len() > LONGEST {
        return Err("must hold one tensor and nothing else".to_owned());
    }
    let order = named("byteorder")?;
    if order.is_some_and(|order| order != b"little") {
        return Err("holds numbers in another order of bytes than little-endian".to_owned());
    }
    let described = Machine::new(program).run()?;
    let data = named(&format!("data/{}", described.key))?;
    Ok(Tensor {
        dtype: described.dtype,
        shape: described.shape.clone(),
        strides: described.strides.clone(),
        offset: described.offset,
        data: data.ok_or("lacks the numbers of its tensor; the file is damaged")?,
    })
}

struct Machine<'a> {
    program: &'a [u8],
    stack: Vec<Item>,
    memo: HashMap<u32, Item>,
}

impl<'a> Machine<'a> {
    fn new(program: &'a [u8]) -> Self {
        Self {
            program,
            stack: Vec::new(),
            memo: HashMap::new(),
        }
    }

    /// Follows the program to its end, which must leave a tensor.
    fn run(mut self) -> Result<Rc<Described>, String> {
        loop {
            let [operation] = *self.take::<1>()?;
            match operation {
                b'.' => break,
                // Version; size of what follows.
                0x80 | 0x95 => _ = self.bytes(if operation == 0x80 { 1 } else { 8 })?,
                b'q' | b'r' | 0x94 | b'h' | b'j' => self.remember(operation)?,
                b'(' | b')' | b'N' | b'}' | 0x88 | 0x89 => self.push_constant(operation),
                b'K' | b'M' | b'J' | 0x8a => self.push_integer(operation)?,
                b'X' | 0x8c => self.push_text(operation)?,
                b't' | 0x85..=0x87 => self.push_tuple(operation)?,
                b'c' | 0x93 => self.push_name(operation)?,
                b'Q' => self.push_storage()?,
                b'R' => self.call()?,
                other => {
                    return Err(format!(
                        "must hold one tensor and nothing else; its pickle has the operation {other:#04x}"
                    ));
                }
            }
        }
        match self.stack.pop() {
            Some(Item::Tensor(described)) => Ok(described),
            _ => Err("must hold one tensor and nothing else".to_owned()),
        }
    }

    fn remember(&mut self, operation: u8) -> Result<(), String> {
        let place = match operation {
            b'q' | b'h' => u32::from(self.take::<1>()?[0]),
            b'r' | b'j' => u32::from_le_bytes(*self.take::<4>()?),
            _ => u32::try_from(self.memo.len()).map_err(|_| damaged())?,
        };
        if matches!(operation, b'h' | b'j') {
            self.stack
                .push(self.memo.get(&place).ok_or_else(damaged)?.clone());
        } else {
            let top = self.stack.last().ok_or_else(damaged)?;
            self.memo.insert(place, top.clone());
        }
        Ok(())
    }

    fn push_constant(&mut self, operation: u8) {
        self.stack.push(match operation {
            b'(' => Item::Mark,
            b')' => Item::Tuple(Rc::new([])),
            _ => Item::Nothing,
        });
    }

    fn push_integer(&mut self, operation: u8) -> Result<(), String> {
        let number = match operation {
            b'K' => i64::from(self.take::<1>()?[0]),
            b'M' => i64::from(u16::from_le_bytes(*self.take::<2>()?)),
            b'J' => i64::from(i32::from_le_bytes(*self.take::<4>()?)),
            _ => {
                let [length] = *self.take::<1>()?;
                let bytes = self.bytes(usize::from(length))?;
                let filler = match bytes.last() {
                    Some(last) if last & 0x80 != 0 => 0xFF,
                    _ => 0,
                };
                let mut wide = [filler; 8];
                wide.get_mut(..bytes.len())
                    .ok_or_else(damaged)?
                    .copy_from_slice(bytes);
                i64::from_le_bytes(wide)
            }
        };
        self.stack.push(Item::Integer(number));
        Ok(())
    }

    fn push_text(&mut self, operation: u8) -> Result<(), String> {
        let length = match operation {
            b'X' => {
                usize::try_from(u32::from_le_bytes(*self.take::<4>()?)).map_err(|_| damaged())?
            }
            _ => usize::from(self.take::<1>()?[0]),
        };
        let text = std::str::from_utf8(self.bytes(length)?).map_err(|_| damaged())?;
        self.stack.push(Item::Text(text.into()));
        Ok(())
    }

    fn push_tuple(&mut self, operation: u8) -> Result<(), String> {
        let first = match operation {
            b't' => {
                let mark = |item: &Item| matches!(item, Item::Mark);
                let at = self.stack.iter().rposition(mark).ok_or_else(damaged)?;
                at + 1
            }
            few => {
                let count = usize::from(few - 0x84);
                self.stack.len().checked_sub(count).ok_or_else(damaged)?
            }
        };
        let items: Rc<[Item]> = self.stack.drain(first..).collect();
        if operation == b't' {
            self.stack.pop();
        }
        self.stack.push(Item::Tuple(items));
        Ok(())
    }

    fn push_name(&mut self, operation: u8) -> Result<(), String> {
        let name = if operation == b'c' {
            let module = self.line()?;
            format!("{module} {}", self.line()?)
        } else {
            let (Some(Item::Text(name)), Some(Item::Text(module))) =
                (self.stack.pop(), self.stack.pop())
            else {
                return Err(damaged());
            };
            format!("{module} {name}")
        };
        self.stack.push(Item::Name(name.into()));
        Ok(())
    }

    /// Numbers that lie in a file of their own: ("storage", their type, the file, where they were, how many they are).
    fn push_storage(&mut self) -> Result<(), String> {
        let Some(Item::Tuple(items)) = self.stack.pop() else {
            return Err(damaged());
        };
        let [Item::Text(kind), Item::Name(name), Item::Text(key), ..] = &items[..] else {
            return Err(damaged());
        };
        if &**kind != "storage" {
            return Err(damaged());
        }
        let dtype = match &**name {
            "torch FloatStorage" => Dtype::Float32,
            "torch HalfStorage" => Dtype::Float16,
            "torch BFloat16Storage" => Dtype::Bfloat16,
            other => return Err(unknown(&other.replace(' ', "."))),
        };
        self.stack.push(Item::Storage(dtype, Rc::clone(key)));
        Ok(())
    }

    /// Follows what a call would give.
    fn call(&mut self) -> Result<(), String> {
        let (Some(Item::Tuple(arguments)), Some(Item::Name(name))) =
            (self.stack.pop(), self.stack.pop())
        else {
            return Err(damaged());
        };
        let made = match (&*name, &arguments[..]) {
            ("collections OrderedDict", []) => Item::Nothing,
            ("torch._utils _rebuild_parameter", [tensor @ Item::Tensor(_), ..]) => tensor.clone(),
            (
                "torch._utils _rebuild_tensor_v2",
                [
                    Item::Storage(dtype, key),
                    Item::Integer(offset),
                    Item::Tuple(shape),
                    Item::Tuple(strides),
                    ..,
                ],
            ) => Item::Tensor(Rc::new(Described {
                dtype: *dtype,
                key: Rc::clone(key),
                offset: usize::try_from(*offset).map_err(|_| damaged())?,
                shape: sizes(shape)?,
                strides: sizes(strides)?,
            })),
            (other, _) => {
                return Err(format!(
                    "must hold one dense tensor and nothing else; its pickle calls {}",
                    other.replace(' ', ".")
                ));
            }
        };
        self.stack.push(made);
        Ok(())
    }

    fn line(&mut self) -> Result<&'a str, String> {
        let end = self.program.iter().position(|byte| *byte == b'\n');
        let line = self.bytes(end.ok_or_else(damaged)?)?;
        self.take::<1>()?;
        std::str::from_utf8(line).map_err(|_| damaged())
    }

    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], String> {
        let (taken, rest) = self.program.split_first_chunk::<N>().ok_or_else(damaged)?;
        self.program = rest;
        Ok(taken)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.program.split_at_checked(length).ok_or_else(damaged)?;
        self.program = rest;
        Ok(taken)
    }
}

fn sizes(items: &[Item]) -> Result<Vec<usize>, String> {
    let size = |item: &Item| match item {
        Item::Integer(number) => usize::try_from(*number).map_err(|_| damaged()),
        _ => Err(damaged()),
    };
    items.iter().map(size).collect()
}

fn damaged() -> String {
    "has a damaged pickle".to_owned()
}
