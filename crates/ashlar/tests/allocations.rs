//! How often the allocator is called for a small request, counted: a whole node in this process, real folders, signed requests
//! over a connection. Allocations are a cost that no machine and no neighbour moves.
#![allow(unsafe_code)]

use env::Env;
use env::buf::BufPool;
use env::disk::Disk;
use env::real_disk::RealDisk;
use extent_store::{DiskIdentity, DiskStore, StoreConfig, StoreSet};
use metadata::apply::Schema;
use metadata::directory::Directory;
use metadata::node::{FolderConfig, Metadata, MetadataConfig};
use object_controller::api::{Account, CreateBucket, Credential, ObjectStore};
use object_controller::{Controller, ControllerConfig};
use s3::auth::{AuthConfig, Authenticator, Scope, SigningKey, format_amz_date};
use s3::ops::Service;
use s3::server::{NoObserver, ServerConfig};
use sha2::{Digest, Sha256};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::oneshot;
use types::{BucketName, ClusterId, DiskId};

/// About 15 % above what was reached when this was written: 23, 24 and 133, the log and apply threads of the PUT among them.
const HEAD_MAX: f64 = 27.0;
const GET_MAX: f64 = 28.0;
const PUT_MAX: f64 = 152.0;

const BODY_BYTES: usize = 4096;
/// Requests of one kind before the count begins: tables grow, keys are derived, the object becomes known.
const WARM_UP: u64 = 300;
const COUNTED: u64 = 1000;
const NODE: u32 = 1;
const ACCESS_KEY: &str = "allocations";
const SECRET_KEY: &str = "of a small request";

static CALLS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, counted.
struct Counted;

// SAFETY: every call is handed to the system's allocator as it came; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counted {
    // SAFETY: the contract is that of the trait; nothing is added to it.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the contract is that of the trait; nothing is added to it.
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` above with this layout, that is from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }

    // SAFETY: the contract is that of the trait; nothing is added to it.
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as for `dealloc`; the caller keeps the contract of `realloc`, which is the same.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

async fn controller(env: &Env, folder: &Path) -> (Controller, Metadata) {
    let read_buffers = BufPool::new(16 << 20);
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(folder, false).expect("a folder"));
    DiskIdentity::create(&*disk, ClusterId(1), NODE, DiskId(1)).expect("a new disk");
    let identity = DiskIdentity::start(&*disk, ClusterId(1), NODE).expect("a sound identity").expect("ours");
    let store = DiskStore::open(env, disk.clone(), identity, StoreConfig::new(read_buffers.clone())).expect("a disk").0;
    let directory = Arc::new(Directory::default());
    let mut config = MetadataConfig::small(env.clone(), NODE, vec![FolderConfig { disk, dir: "meta".into() }]);
    config.create = true;
    let metadata = Metadata::open(config, Box::new(Schema::new(directory.clone()))).expect("sound metadata");
    let account =
        Account { canonical_id: "root".into(), display_name: "root".into(), email: String::new(), is_root: true };
    let controller = Controller::open(ControllerConfig {
        env: env.clone(),
        metadata: metadata.clone(),
        directory,
        disks: StoreSet::new(vec![store]).expect("one disk").into(),
        cluster: ClusterId(1),
        rf: (1).into(),
        write_buffers: BufPool::new(ControllerConfig::MIN_WRITE_BYTES),
        read_buffers,
        inline_bytes: types::limits::INLINE_BYTES,
        group_bytes: 16 << 20,
        preallocate_bytes: 1 << 20,
        root: Credential { access_key: ACCESS_KEY.into(), secret_key: SECRET_KEY.into(), account },
        nodes: None,
    });
    (controller.await.expect("the controller opens"), metadata)
}

/// A node with one bucket, on a thread of its own until it is told to end.
fn serve(folder: &Path, started: std::sync::mpsc::Sender<SocketAddr>, end: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let env = Env::system(2);
        let (controller, metadata) = controller(&env, folder).await;
        let name = BucketName::new("bucket").expect("a name");
        let request = CreateBucket { name, owner: "root".into(), location: String::new() };
        controller.create_bucket(request).await.expect("a bucket");
        let clock = env.clock.clone();
        let now_ms: s3::auth::NowMs = Arc::new(move || clock.wall_ms());
        let auth = AuthConfig { region: "us-east-1".into(), service: "s3", now_ms };
        let store = Arc::new(controller.clone());
        let authenticator = Arc::new(Authenticator::new(auth, store.clone()));
        let service = Arc::new(Service::new(store, authenticator.clone()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        started.send(listener.local_addr().expect("bound")).expect("somebody waits");
        let until = async { drop(end.await) };
        let config = ServerConfig::default();
        s3::server::serve(listener, config, authenticator, service, Arc::new(NoObserver), until).await;
        controller.close().await;
        tokio::task::spawn_blocking(move || metadata.close()).await.expect("closed");
    });
}

/// A signed request as an SDK sends it.
fn request(method: &str, body: &[u8]) -> Vec<u8> {
    let date = format_amz_date(Env::system(1).clock.wall_ms());
    let scope = Scope { date: &date[..8], region: "us-east-1", service: "s3" };
    let payload = hex::encode(Sha256::digest(body));
    let names = "host;x-amz-content-sha256;x-amz-date";
    let lines = format!("host:localhost\nx-amz-content-sha256:{payload}\nx-amz-date:{date}\n");
    let canonical = format!("{method}\n/bucket/a/key/of/some/length\n\n{lines}\n{names}\n{payload}");
    let digest = hex::encode(Sha256::digest(canonical.as_bytes()));
    let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}");
    let signature = SigningKey::derive(SECRET_KEY, &scope).sign(to_sign.as_bytes());
    let signature = String::from_utf8(signature.to_vec()).expect("hex digits");
    let head = format!(
        "{method} /bucket/a/key/of/some/length HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a client\r\nAccept: */*\r\n\
         Content-Length: {}\r\nX-Amz-Date: {date}\r\nX-Amz-Content-Sha256: {payload}\r\n\
         Authorization: AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders={names}, Signature={signature}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Sends it and takes the answer in, without an allocation.
fn exchange(stream: &mut TcpStream, request: &[u8], body_bytes: usize) {
    stream.write_all(request).expect("sent");
    let (mut answer, mut len) = ([0; 16 << 10], 0);
    loop {
        let n = stream.read(&mut answer[len..]).expect("an answer");
        assert!(n > 0, "the connection ended");
        len += n;
        let head = answer[..len].windows(4).position(|w| w == b"\r\n\r\n");
        if head.is_some_and(|head| len >= head + 4 + body_bytes) {
            break;
        }
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&answer[..len]));
}

/// Calls of the allocator for one request, on average.
fn calls(stream: &mut TcpStream, request: &[u8], body_bytes: usize) -> f64 {
    (0..WARM_UP).for_each(|_| exchange(stream, request, body_bytes));
    let before = CALLS.load(Ordering::Relaxed);
    (0..COUNTED).for_each(|_| exchange(stream, request, body_bytes));
    (CALLS.load(Ordering::Relaxed) - before) as f64 / COUNTED as f64
}

#[test]
fn a_small_request_calls_the_allocator_no_more_often_than_it_did() {
    let folder = tempfile::tempdir().expect("a folder");
    let ((started, address), (end, ended)) = (std::sync::mpsc::channel(), oneshot::channel());
    std::thread::scope(|scope| {
        scope.spawn(|| serve(folder.path(), started, ended));
        let mut stream = TcpStream::connect(address.recv().expect("it starts")).expect("a connection");
        let put = calls(&mut stream, &request("PUT", &[7; BODY_BYTES]), 0);
        let head = calls(&mut stream, &request("HEAD", b""), 0);
        let get = calls(&mut stream, &request("GET", b""), BODY_BYTES);
        drop(stream);
        end.send(()).expect("it runs");
        println!("calls of the allocator: HEAD {head:.1}, GET 4 KiB {get:.1}, PUT 4 KiB {put:.1}");
        assert!(head <= HEAD_MAX && get <= GET_MAX && put <= PUT_MAX, "HEAD {head}, GET {get}, PUT {put}");
    });
}
