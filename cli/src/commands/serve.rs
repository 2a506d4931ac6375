//! `pz serve`

use crate::args::Serve;
use crate::failure::{Failure, show};
use crate::messages::say;
use crate::server::{Log, Server};
use crate::table;

/// Serves a folder until the program is killed.
pub fn run(args: &Serve) -> Result<(), Failure> {
    let log: Log = match args.verbose {
        true => Box::new(|line| say(format_args!("{line}"))),
        false => Box::new(|_| {}),
    };
    let server = Server::bind(&args.folder, args.listen, args.connections.get().into(), log)?;
    // A program that started this one can read the port from this line.
    let folder = show(&args.folder);
    table::print(&format!("serving {folder} at http://{}/\n", server.address()?))?;
    server.run()
}
