//! Kernels that write anything at all.

use super::*;
use crate::door::layout::{ENTRY, HANDLES, PATH, Request};
use crate::test_data::noise;

fn words(seed: u32, count: usize) -> Vec<u32> {
    bytemuck::pod_collect_to_vec(&noise(seed, 4 * count, 256))
}

/// Garbage in the ring is answered or counted, and the host neither panics nor loses room.
#[test]
fn anything_in_the_ring() {
    let (folder, door, client, contents, files) = with_file(200_000);
    let all = words(1, 4000 * ENTRY);
    for (i, garbage) in all.chunks_exact(ENTRY).enumerate() {
        let mut garbage: [u32; ENTRY] = garbage.try_into().unwrap();
        // Some of it is nearly right.
        if i % 2 == 0 {
            garbage[0] %= 8;
        }
        if i % 3 != 0 {
            garbage[2] %= 3;
        }
        if i % 4 != 0 {
            garbage[4] %= 200_001;
            garbage[5] = 0;
            garbage[6] %= 300_000;
            garbage[7] = 0;
        }
        if i % 5 != 0 {
            garbage[8] %= 300;
        }
        let request: Request = bytemuck::cast(garbage);
        until("the ring stays full", || client.ask(request).is_ok());
    }
    until("not all is taken", || door.statistics().requests == 4000);
    assert!(door.statistics().malformed > 100);
    // The garbage's contents are freed when its handles are used again.
    let mut right = 0;
    let handles: Vec<_> = (0..HANDLES).map_while(|_| client.read(files[0], 50, 60).ok()).collect();
    for handle in handles {
        if wait(&client, &handle) == Status::Ready {
            assert_eq!(client.contents(&handle), contents[50..110]);
            right += 1;
        }
        client.close(handle);
    }
    assert!(right > 0);
    assert_eq!(read(&client, files[0], 0, 1).unwrap(), contents[..1]);
    until("room is not given back", || door.free_bytes() == 8 << 20);
    assert!(fs::read(folder.path("plain")).unwrap() == contents);
}

/// Garbage everywhere else: in the handles, the paths and the counters.
#[test]
fn anything_in_the_memory() {
    let folder = Folder::new();
    folder.write("plain", &mixture(10_000));
    let (server, client) = unattended(&folder.options().ring(128));
    let (file, _) = server.files.open("plain".as_ref(), FileMode::Plain).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| server.watch(0));
        scope.spawn(|| server.work(None));
        let first = server.slots.layout.answer(0);
        let all = server.slots.words().get();
        for (round, garbage) in words(7, 100 * PATH).chunks_exact(PATH).enumerate() {
            for (i, value) in garbage.iter().enumerate() {
                let at = first + (*value as usize + 1009 * i) % (all.len() - first);
                all[at].store(value.rotate_left(round as u32), Ordering::Relaxed);
            }
            let Ok(handle) = client.read(file.number, round as u64, 10) else { continue };
            let opened = client.open("plain", FileMode::Plain);
            let _ = (client.status(&handle), client.contents(&handle));
            let _ = (client.piece(&handle, 0), client.fill(&handle, 5, b"x"), client.next(&handle));
            client.close(handle);
            opened.into_iter().for_each(|handle| client.close(handle));
        }
        until("the ring stays full", || client.read(file.number, 0, 1).is_ok());
        // The host must not believe the header either.
        for word in all.iter().take(32) {
            word.store(u32::MAX, Ordering::Relaxed);
        }
        server.stop();
    });
}
