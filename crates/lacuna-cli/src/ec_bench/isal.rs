//! Intel's ISA-L, loaded at run time if it is installed: the library that the paper measures. It
//! has the same code as Lacuna's MDS code.

#![allow(unsafe_code)]

use super::Op;
use super::coder::{Coder, Shape};
use crate::failure::Failure;
use libloading::Library;
use std::ffi::{c_int, c_uchar};
use std::path::Path;
use std::sync::Arc;

/// Names under which systems install it.
const NAMES: [&str; 2] = ["libisal.so.2", "libisal.so"];

/// Bytes of ISA-L's table per coefficient.
const TABLE_BYTES: usize = 32;

type GenCauchy = unsafe extern "C" fn(*mut c_uchar, c_int, c_int);
type InvertMatrix = unsafe extern "C" fn(*mut c_uchar, *mut c_uchar, c_int) -> c_int;
type InitTables = unsafe extern "C" fn(c_int, c_int, *const c_uchar, *mut c_uchar);
type EncodeData = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    *const c_uchar,
    *const *const c_uchar,
    *const *mut c_uchar,
);
type EncodeDataUpdate = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_uchar,
    *const c_uchar,
    *const *mut c_uchar,
);

/// The functions of `erasure_code.h` that are used.
pub(super) struct Functions {
    gen_cauchy: GenCauchy,
    invert_matrix: InvertMatrix,
    init_tables: InitTables,
    encode_data: EncodeData,
    encode_data_update: EncodeDataUpdate,
    /// Keeps the code mapped.
    _library: Library,
}

/// One thread's tables.
pub(super) struct Isal {
    functions: Arc<Functions>,
    shape: Shape,
    chunk_bytes: c_int,
    encode_tables: Vec<u8>,
    decode_tables: Vec<u8>,
}

/// Loads the library, or says why not.
pub(super) fn load(path: Option<&Path>) -> Result<Arc<Functions>, String> {
    let names = match path {
        Some(path) => vec![path.as_os_str().to_owned()],
        None => NAMES.iter().map(Into::into).collect(),
    };
    let mut error = String::new();
    for name in names {
        // SAFETY: loading runs the library's initialisers; ISA-L's only look at
        // the processor. Another library under its name is the user's own doing.
        match unsafe { functions(&name) } {
            Ok(functions) => return Ok(Arc::new(functions)),
            Err(cause) => error = format!("{}: {cause}", name.to_string_lossy()),
        }
    }
    Err(format!("cannot load ISA-L (apt install libisal2): {error}"))
}

/// # Safety
/// The library is ISA-L: its functions have the types above.
unsafe fn functions(name: &std::ffi::OsStr) -> Result<Functions, libloading::Error> {
    // SAFETY: by contract.
    unsafe {
        let library = Library::new(name)?;
        Ok(Functions {
            gen_cauchy: *library.get(b"gf_gen_cauchy1_matrix\0")?,
            invert_matrix: *library.get(b"gf_invert_matrix\0")?,
            init_tables: *library.get(b"ec_init_tables\0")?,
            encode_data: *library.get(b"ec_encode_data\0")?,
            encode_data_update: *library.get(b"ec_encode_data_update\0")?,
            _library: library,
        })
    }
}

impl Isal {
    pub(super) fn new(functions: &Arc<Functions>, shape: Shape) -> Result<Self, Failure> {
        let Ok(chunk_bytes) = c_int::try_from(shape.chunk_bytes) else {
            let bytes = shape.chunk_bytes;
            return Err(Failure::Usage(format!("--chunk {bytes}: ISA-L takes up to 2 GiB")));
        };
        let (k, m, lost) = (shape.k, shape.m, shape.lost);
        let mut matrix = vec![0; (k + m) * k];
        let mut encode_tables = vec![0; k * m * TABLE_BYTES];
        // SAFETY: the matrix has k + m rows of k; the tables have their bytes
        // for each of its last m rows.
        unsafe {
            (functions.gen_cauchy)(matrix.as_mut_ptr(), (k + m) as c_int, k as c_int);
            let parity_rows = matrix[k * k..].as_ptr();
            (functions.init_tables)(
                k as c_int,
                m as c_int,
                parity_rows,
                encode_tables.as_mut_ptr(),
            );
        }
        // The rows of the chunks that are there: data past the lost, then parity.
        let mut there = matrix[lost * k..(k + lost) * k].to_vec();
        let mut inverse = vec![0; k * k];
        let mut decode_tables = vec![0; k * lost * TABLE_BYTES];
        // SAFETY: both are k by k; the first `lost` rows of the inverse give the
        // lost chunks, and the tables have their bytes for each.
        unsafe {
            let (from, to) = (there.as_mut_ptr(), inverse.as_mut_ptr());
            if (functions.invert_matrix)(from, to, k as c_int) != 0 {
                return Err(Failure::Local("ISA-L cannot invert its matrix".to_owned()));
            }
            let to = decode_tables.as_mut_ptr();
            (functions.init_tables)(k as c_int, lost as c_int, inverse.as_ptr(), to);
        }
        let functions = functions.clone();
        Ok(Self { functions, shape, chunk_bytes, encode_tables, decode_tables })
    }
}

impl Coder for Isal {
    fn can(&self, _op: Op) -> bool {
        true
    }

    fn encode(&mut self, data: &[u8], parity: &mut [u8]) -> Result<(), Failure> {
        let chunk_bytes = self.shape.chunk_bytes;
        let inputs: Vec<_> = data.chunks_exact(chunk_bytes).map(<[u8]>::as_ptr).collect();
        let outputs: Vec<_> =
            parity.chunks_exact_mut(chunk_bytes).map(<[u8]>::as_mut_ptr).collect();
        let (k, m) = (inputs.len() as c_int, outputs.len() as c_int);
        assert!((inputs.len(), outputs.len()) == (self.shape.k, self.shape.m));
        // SAFETY: k inputs and m outputs of a chunk each, as the tables say.
        unsafe {
            let tables = self.encode_tables.as_ptr();
            let (inputs, outputs) = (inputs.as_ptr(), outputs.as_ptr());
            (self.functions.encode_data)(self.chunk_bytes, k, m, tables, inputs, outputs);
        }
        Ok(())
    }

    fn update(&mut self, data: &[u8], parity: &mut [u8]) -> Result<(), Failure> {
        let Shape { k, m, chunk_bytes, .. } = self.shape;
        assert!((data.len(), parity.len()) == (k * chunk_bytes, m * chunk_bytes));
        let mut outputs = vec![std::ptr::null_mut(); m];
        for (index, offset, packet) in self.shape.packets(data) {
            for (output, chunk) in outputs.iter_mut().zip(parity.chunks_exact_mut(chunk_bytes)) {
                *output = chunk[offset..offset + packet.len()].as_mut_ptr();
            }
            // SAFETY: m outputs of the packet's length, index below k.
            unsafe {
                (self.functions.encode_data_update)(
                    packet.len() as c_int,
                    k as c_int,
                    m as c_int,
                    index as c_int,
                    self.encode_tables.as_ptr(),
                    packet.as_ptr(),
                    outputs.as_ptr(),
                );
            }
        }
        Ok(())
    }

    fn decode(&mut self, data: &mut [u8], parity: &[u8]) -> Result<(), Failure> {
        let Shape { k, lost, chunk_bytes, .. } = self.shape;
        let (missing, there) = data.split_at_mut(lost * chunk_bytes);
        let there = there.chunks_exact(chunk_bytes);
        let parity = parity.chunks_exact(chunk_bytes).take(lost);
        let inputs: Vec<_> = there.chain(parity).map(<[u8]>::as_ptr).collect();
        let outputs: Vec<_> =
            missing.chunks_exact_mut(chunk_bytes).map(<[u8]>::as_mut_ptr).collect();
        assert!((inputs.len(), outputs.len()) == (k, lost));
        // SAFETY: k inputs and `lost` outputs of a chunk each, as the tables say.
        unsafe {
            let tables = self.decode_tables.as_ptr();
            let (inputs, outputs) = (inputs.as_ptr(), outputs.as_ptr());
            let (k, lost) = (k as c_int, lost as c_int);
            (self.functions.encode_data)(self.chunk_bytes, k, lost, tables, inputs, outputs);
        }
        Ok(())
    }
}
