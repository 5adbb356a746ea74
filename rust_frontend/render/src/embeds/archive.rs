//! A zip archive whose files are stored as they are, as those of `torch.save`.

/// Where the list of files ends: a record of so many bytes, behind which a comment may follow.
const END: usize = 22;
const LONGEST_COMMENT: usize = 0xFFFF;
const ENTRY: usize = 46;
const HEADER: usize = 30;

/// The files of an archive.
#[derive(Debug)]
pub(super) struct Archive<'a> {
    bytes: &'a [u8],
    files: Vec<File<'a>>,
}

#[derive(Debug)]
struct File<'a> {
    name: &'a [u8],
    /// Of its header.
    at: usize,
    length: usize,
}

impl<'a> Archive<'a> {
    /// Reads the list of files.
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self, String> {
        let files = list(bytes).ok_or_else(damaged)?;
        let stored = |(file, plain): (File<'a>, bool)| plain.then_some(file);
        let files = files.into_iter().map(stored).collect::<Option<_>>();
        let files = files
            .ok_or("is a compressed or encrypted archive; torch.save makes one that is neither")?;
        Ok(Self { bytes, files })
    }

    /// The folder of the only file that ends with so much.
    pub(super) fn folder(&self, end: &[u8]) -> Option<&'a [u8]> {
        self.files
            .iter()
            .find_map(|file| file.name.strip_suffix(end))
    }

    /// The bytes of a file.
    pub(super) fn read(&self, name: &[u8]) -> Result<Option<&'a [u8]>, String> {
        let Some(file) = self.files.iter().find(|file| file.name == name) else {
            return Ok(None);
        };
        let content = || {
            let header = part(self.bytes, file.at, HEADER)?;
            let names = usize::from(short(header, 26)?) + usize::from(short(header, 28)?);
            let begin = file.at.checked_add(HEADER)?.checked_add(names)?;
            header.starts_with(super::ZIP).then_some(())?;
            part(self.bytes, begin, file.length)
        };
        content().map(Some).ok_or_else(damaged)
    }
}

/// The files, and whether each is stored as it is; `None` where the archive is damaged.
fn list(bytes: &[u8]) -> Option<Vec<(File<'_>, bool)>> {
    let first = bytes.len().checked_sub(END)?;
    let begin = first.saturating_sub(LONGEST_COMMENT);
    let end = (begin..=first)
        .rev()
        .find(|at| bytes[*at..].starts_with(b"PK\x05\x06"))?;
    let end = part(bytes, end, END)?;
    let mut at = usize::try_from(word(end, 16)?).ok()?;
    let mut files = Vec::new();
    for _ in 0..short(end, 10)? {
        let entry = part(bytes, at, ENTRY)?;
        entry.starts_with(b"PK\x01\x02").then_some(())?;
        let [name, extra, comment] = [28, 30, 32].map(|place| short(entry, place));
        let name = usize::from(name?);
        let size = |place| usize::try_from(word(entry, place)?).ok();
        let file = File {
            name: part(bytes, at + ENTRY, name)?,
            at: size(42)?,
            length: size(20)?,
        };
        let plain = short(entry, 8)? & 1 == 0 && short(entry, 10)? == 0;
        files.push((file, plain));
        at += ENTRY + name + usize::from(extra?) + usize::from(comment?);
    }
    Some(files)
}

fn part(bytes: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(length)?)
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = part(bytes, at, 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = part(bytes, at, 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn damaged() -> String {
    "is a damaged archive".to_owned()
}
