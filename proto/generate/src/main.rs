//! Writes Rust code for the protos of octavo: `octavo-proto-generate DESCRIPTOR_SET FOLDER`.

use std::process::ExitCode;

use prost::Message as _;
use prost_types::FileDescriptorSet;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [descriptors, folder] = args.as_slice() else {
        eprintln!("usage: octavo-proto-generate DESCRIPTOR_SET FOLDER");
        return ExitCode::from(2);
    };
    match generate(descriptors, folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{descriptors}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn generate(descriptors: &str, folder: &str) -> Result<(), Box<dyn std::error::Error>> {
    let set = FileDescriptorSet::decode(std::fs::read(descriptors)?.as_slice())?;
    // Connecting is left to callers: the server has no use for it.
    tonic_prost_build::configure()
        .build_transport(false)
        .out_dir(folder)
        .compile_fds(set)?;
    Ok(())
}
