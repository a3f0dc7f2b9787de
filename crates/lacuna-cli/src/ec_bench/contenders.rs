//! Finds the coders that this host has, and checks each on one block before it is measured.

use super::coder::{Coder, Copying, Own, Shape};
use super::reed_solomon_simd::ReedSolomonSimd;
use super::{CodeName, EcBenchArgs, Op, isal, measure};
use crate::failure::Failure;
use crate::output::Output;
use lacuna_code::{Code, Codec, Engine, EngineKind};

/// Makes a coder for one thread.
pub(super) type Make = Box<dyn Fn() -> Result<Box<dyn Coder>, Failure>>;

/// A coder to compare.
pub(super) struct Contender {
    pub(super) code: CodeName,
    pub(super) engine: String,
    pub(super) make: Make,
}

/// The requested coders that exist here. A coder requested by name that does not exist is an error.
pub(super) fn find(
    args: &EcBenchArgs,
    shape: &Shape,
    output: Output,
) -> Result<Vec<Contender>, Failure> {
    let wanted = |code| args.codes.is_empty() || args.codes.contains(&code);
    let asked = |code| args.codes.contains(&code);
    let shape = *shape;
    let mut found = Vec::new();
    if wanted(CodeName::Copy) {
        let make: Make = Box::new(|| Ok(Box::new(Copying)));
        found.push(Contender { code: CodeName::Copy, engine: "memcpy".to_owned(), make });
    }
    if wanted(CodeName::Xor) {
        match Code::xor(shape.k, shape.m) {
            Ok(code) => own(args, shape, CodeName::Xor, code, &mut found)?,
            Err(error) if asked(CodeName::Xor) => return Err(Failure::Usage(error.to_string())),
            Err(error) => output.note(&format!("xor left out: {error}")),
        }
    }
    if wanted(CodeName::Mds) {
        let code =
            Code::mds(shape.k, shape.m).map_err(|error| Failure::Usage(error.to_string()))?;
        own(args, shape, CodeName::Mds, code, &mut found)?;
    }
    if wanted(CodeName::Isal) {
        match isal::load(args.isal.as_deref()) {
            Ok(library) => {
                let make: Make = Box::new(move || Ok(Box::new(isal::Isal::new(&library, shape)?)));
                found.push(Contender { code: CodeName::Isal, engine: "isal".to_owned(), make });
            }
            Err(error) if asked(CodeName::Isal) || args.isal.is_some() => {
                return Err(Failure::Local(error));
            }
            Err(error) => output.note(&format!("isal left out: {error}")),
        }
    }
    if wanted(CodeName::ReedSolomonSimd) {
        match ReedSolomonSimd::supports(&shape) {
            Ok(()) => {
                let make: Make = Box::new(move || Ok(Box::new(ReedSolomonSimd::new(shape)?)));
                let code = CodeName::ReedSolomonSimd;
                found.push(Contender { code, engine: code.name().to_owned(), make });
            }
            Err(error) if asked(CodeName::ReedSolomonSimd) => return Err(Failure::Usage(error)),
            Err(error) => output.note(&format!("reed-solomon-simd left out: {error}")),
        }
    }
    found.iter().try_for_each(|contender| check(contender, &shape))?;
    Ok(found)
}

/// One of Lacuna's codes, on the chosen engine or on all.
fn own(
    args: &EcBenchArgs,
    shape: Shape,
    name: CodeName,
    code: Code,
    found: &mut Vec<Contender>,
) -> Result<(), Failure> {
    let engines: Vec<Engine> = if args.all_engines {
        // The naive engine is the reference and is not measured.
        Engine::available().filter(|engine| engine.kind() != EngineKind::Naive).collect()
    } else {
        vec![Engine::chosen().map_err(|error| Failure::Usage(error.to_string()))?]
    };
    for engine in engines {
        let codec = Codec::with_engine(code, engine);
        let make: Make = Box::new(move || Ok(Box::new(Own::new(shape, &codec))));
        found.push(Contender { code: name, engine: engine.kind().to_string(), make });
    }
    Ok(())
}

/// Checks encode, update and decode on one block.
fn check(contender: &Contender, shape: &Shape) -> Result<(), Failure> {
    let mut coder = (contender.make)()?;
    let data = measure::pattern(shape.block_bytes());
    let mut parity = vec![0xa5; shape.parity_bytes()];
    coder.encode(&data, &mut parity)?;
    let wrong = |what: &str| {
        Failure::Verification(format!("{} ({}) {what}", contender.code.name(), contender.engine))
    };
    if contender.code == CodeName::Isal {
        let code =
            Code::mds(shape.k, shape.m).map_err(|error| Failure::Usage(error.to_string()))?;
        let mut own = Own::new(*shape, &Codec::with_engine(code, Engine::fastest()));
        let mut expected = vec![0; shape.parity_bytes()];
        own.encode(&data, &mut expected)?;
        if parity != expected {
            return Err(wrong("computes another parity than Lacuna's MDS code"));
        }
    }
    if coder.can(Op::Update) {
        let mut folded = vec![0; shape.parity_bytes()];
        coder.update(&data, &mut folded)?;
        if folded != parity {
            return Err(wrong("folds in another parity than it encodes"));
        }
    }
    if coder.can(Op::Decode) {
        let mut repaired = data.clone();
        repaired[..shape.lost * shape.chunk_bytes].fill(0xee);
        coder.decode(&mut repaired, &parity)?;
        if repaired != data {
            return Err(wrong("repairs wrongly"));
        }
    }
    Ok(())
}
