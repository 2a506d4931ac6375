//! The modules of a frame: the list in its header, and the programs after the header.
//!
//! The format does not know what a module does. It only gives the module's bytes, and how to run it.

use std::io::Read;
use std::sync::Arc;

use super::Fault;

/// The most modules of a frame: as many entries as a list can hold.
pub(crate) const MAX_MODULES: usize = 6;
/// The longest module, in bytes.
pub(crate) const MAX_MODULE_LEN: usize = 1 << 16;
/// Base-2 logarithms of the bytes that a lane may stand for.
pub(crate) const LANE_LOGS: std::ops::RangeInclusive<u8> = 8..=20;
/// Length of an entry of the list.
const ENTRY_LEN: usize = 40;

/// A module of a frame, and how it is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModuleRecord {
    /// Its SHA-256.
    pub(crate) sha256: [u8; 32],
    /// Units of fuel of a lane.
    pub(crate) fuel: u32,
    /// Base-2 logarithm of the bytes that a lane stands for.
    pub(crate) lane_log: u8,
    /// The module.
    pub(crate) bytes: Vec<u8>,
}

impl ModuleRecord {
    /// The most fuel of a lane, so that a block takes time in proportion to its length.
    pub(crate) const fn max_fuel(lane_log: u8) -> u32 {
        1 << (lane_log + 8)
    }

    /// The most fuel of a lane that stands for `bytes` bytes: the last one of a unit may stand for few, and a file may
    /// have many such units.
    #[cfg(feature = "modules")]
    pub(crate) const fn max_fuel_of(bytes: u32) -> u32 {
        (1 << 16) + 256 * bytes
    }

    /// The entry of the list.
    fn entry(&self) -> [u8; ENTRY_LEN] {
        let mut entry = [0; ENTRY_LEN];
        entry[..32].copy_from_slice(&self.sha256);
        entry[32..34].copy_from_slice(&((self.bytes.len() - 1) as u16).to_le_bytes());
        entry[34..38].copy_from_slice(&self.fuel.to_le_bytes());
        entry[38] = self.lane_log;
        entry
    }

    /// Reads the module of an entry.
    fn read(entry: &[u8; ENTRY_LEN], reader: &mut impl Read) -> Result<Self, Fault> {
        let (sha256, rest) = entry.split_first_chunk::<32>().ok_or(LIST)?;
        let &[len_low, len_high, a, b, c, d, lane_log, reserved] = rest else { return Err(LIST) };
        let len = usize::from(u16::from_le_bytes([len_low, len_high])) + 1;
        let fuel = u32::from_le_bytes([a, b, c, d]);
        if reserved != 0 {
            return Err(Fault::Unsupported("a module's entry uses a part that is not known"));
        }
        if !LANE_LOGS.contains(&lane_log) || !(1..=Self::max_fuel(lane_log)).contains(&fuel) {
            return Err(Fault::Corrupt("the fuel or the lanes of a module are out of range"));
        }
        let mut bytes = Vec::new();
        reader.take(len as u64).read_to_end(&mut bytes)?;
        if bytes.len() < len {
            return Err(Fault::Truncated);
        }
        let record = Self { sha256: *sha256, fuel, lane_log, bytes };
        record.check_hash()?;
        Ok(record)
    }

    #[cfg(feature = "modules")]
    fn check_hash(&self) -> Result<(), Fault> {
        use sha2::Digest as _;
        if sha2::Sha256::digest(&self.bytes)[..] == self.sha256 {
            Ok(())
        } else {
            Err(Fault::Corrupt("a module of the frame does not agree with its hash"))
        }
    }

    #[cfg(not(feature = "modules"))]
    fn check_hash(&self) -> Result<(), Fault> {
        Err(Fault::Unsupported("the frame needs modules, and this build was made without them"))
    }
}

const LIST: Fault =
    Fault::Corrupt("the frame header's list of modules is not one of whole entries");

/// A frame's modules, in the order of their numbers. Clones share them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ModuleTable(Option<Arc<[ModuleRecord]>>);

impl ModuleTable {
    /// No modules.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self(None);

    /// A table of these modules, each of 1 to [`MAX_MODULE_LEN`] bytes. A frame has at most [`MAX_MODULES`].
    pub(crate) fn new(records: Vec<ModuleRecord>) -> Self {
        let lengths = 1..=MAX_MODULE_LEN;
        debug_assert!(records.iter().all(|record| lengths.contains(&record.bytes.len())));
        Self((!records.is_empty()).then(|| records.into()))
    }

    /// The modules.
    pub(crate) fn records(&self) -> &[ModuleRecord] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Length of all modules in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.records().iter().map(|record| record.bytes.len()).sum()
    }

    /// Appends the header's list, its length first; nothing if there are no modules.
    pub(super) fn append_list(&self, bytes: &mut Vec<u8>) {
        if !self.is_empty() {
            bytes.push((self.records().len() * ENTRY_LEN) as u8);
        }
        for record in self.records() {
            bytes.extend_from_slice(&record.entry());
        }
    }

    /// Appends the modules, which follow the header.
    pub(super) fn append_modules(&self, bytes: &mut Vec<u8>) {
        for record in self.records() {
            bytes.extend_from_slice(&record.bytes);
        }
    }

    /// Reads the modules that `list` names. The header that holds the list has been checked.
    pub(super) fn read(list: &[u8], reader: &mut impl Read) -> Result<Self, Fault> {
        let (entries, rest) = list.as_chunks::<ENTRY_LEN>();
        if entries.is_empty() || !rest.is_empty() {
            return Err(LIST);
        }
        let records = entries.iter().map(|entry| ModuleRecord::read(entry, reader));
        records.collect::<Result<_, _>>().map(Self::new)
    }
}

#[cfg(all(test, feature = "modules"))]
mod tests {
    use super::*;
    use sha2::Digest as _;

    fn record(bytes: Vec<u8>) -> ModuleRecord {
        let sha256 = sha2::Sha256::digest(&bytes).into();
        ModuleRecord { sha256, fuel: 77, lane_log: 12, bytes }
    }

    fn bytes_of(table: &ModuleTable) -> (Vec<u8>, Vec<u8>) {
        let (mut list, mut modules) = (Vec::new(), Vec::new());
        table.append_list(&mut list);
        table.append_modules(&mut modules);
        (list, modules)
    }

    #[test]
    fn tables_round_trip() {
        assert_eq!(bytes_of(&ModuleTable::default()), (Vec::new(), Vec::new()));
        let records: Vec<_> =
            [1, 2, 300, MAX_MODULE_LEN].map(|len| record(vec![len as u8; len])).into();
        let table = ModuleTable::new(records);
        let (list, modules) = bytes_of(&table);
        assert_eq!(usize::from(list[0]), list.len() - 1);
        assert_eq!(modules.len(), table.bytes());
        assert_eq!(ModuleTable::read(&list[1..], &mut &modules[..]).unwrap(), table);
        let cut = ModuleTable::read(&list[1..], &mut &modules[..modules.len() - 1]);
        assert!(matches!(cut, Err(Fault::Truncated)));
    }

    #[test]
    fn lists_and_modules_that_break_a_rule_are_refused() {
        let (list, modules) = bytes_of(&ModuleTable::new(vec![record(vec![7; 9])]));
        let read = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut list = list[1..].to_vec();
            change(&mut list);
            ModuleTable::read(&list, &mut &modules[..])
        };
        assert!(read(&|_| {}).is_ok());
        let set = |at: usize, bytes: &'static [u8]| {
            move |list: &mut Vec<u8>| list[at..at + bytes.len()].copy_from_slice(bytes)
        };
        assert!(matches!(read(&set(39, &[1])), Err(Fault::Unsupported(_))));
        for (what, refused) in [
            ("a hash", read(&set(0, &[1, 2, 3]))),
            ("a length", read(&set(32, &[7]))),
            ("no fuel", read(&set(34, &[0, 0, 0, 0]))),
            ("fuel", read(&set(34, &[1, 0, 0x10, 0]))),
            ("short lanes", read(&set(38, &[7]))),
            ("long lanes", read(&set(38, &[21]))),
            ("half an entry", read(&|list| list.truncate(20))),
            ("no entry", read(&Vec::clear)),
        ] {
            assert!(matches!(refused, Err(Fault::Corrupt(_))), "{what}: {refused:?}");
        }
    }
}
