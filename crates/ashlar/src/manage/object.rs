//! Where an object lies, and how sound that is just now.

use super::{Manager, Scene, store_error, unreadable};
use admin::operations::{ObjectWish, Refused};
use curator::policy::required_rf;
use metadata::read::root;
use metadata::rows::{GroupRecord, Replica, ReplicaState};
use metadata::strip::{StripRecord, StripState};
use object_controller::api::ObjectStore;
use serde_json::{Value, json};
use types::{BucketName, GroupId, ObjectKey, VersionId};

impl Manager {
    pub(super) async fn object(&self, wish: &ObjectWish) -> Result<Value, Refused> {
        let ObjectWish { bucket, key, version_id } = wish;
        let unknown = || Refused::Unknown(format!("there is no bucket {bucket}"));
        let name = BucketName::new(bucket).map_err(|_| unknown())?;
        let info = self.controller.bucket(&name).ok_or_else(unknown)?;
        let object = ObjectKey::new(key).map_err(|e| Refused::Wrong(e.to_string()))?;
        let version: Option<VersionId> = match version_id {
            Some(text) => Some(text.parse().map_err(|_| Refused::Wrong(format!("'{text}' is not a version id")))?),
            None => None,
        };
        let places = self.controller.places(&info, &object, version).await.map_err(|e| store_error(&e))?;
        // Read after the object: a group that an upload or a copy had then is still there, or the object is gone since.
        let scene = self.scene().await?;
        let default_rf = self.controller.rf();
        let mut groups = Vec::new();
        for (group, bytes) in &places.groups {
            let record = root::group(&*scene.snapshot, *group).map_err(|e| unreadable(&e))?;
            groups.push(describe(&scene, *group, *bytes, record.as_ref(), default_rf)?);
        }
        let is_sound = groups.iter().all(|group| group["ok"] == Value::Bool(true));
        Ok(json!({
            "bucket": bucket,
            "key": key,
            "version_id": places.info.version.map(|version| version.to_string()),
            "size": places.info.size,
            "etag": places.info.etag.to_string(),
            "modified_ms": places.info.modified_ms,
            "inline_bytes": places.inline_bytes,
            "ok": is_sound,
            "groups": groups,
        }))
    }
}

fn describe(
    scene: &Scene,
    group: GroupId,
    bytes: u64,
    record: Option<&GroupRecord>,
    default_rf: u8,
) -> Result<Value, Refused> {
    let Some(record) = record else {
        return Ok(json!({ "group": group.to_string(), "bytes": bytes, "state": "gone", "ok": false }));
    };
    let strip = strip_of(scene, record)?;
    let required = if strip.is_some() { 1 } else { required_rf(&scene.buckets, record, default_rf) };
    let sound = sound_replicas(scene, record);
    let mut value = json!({
        "group": group.to_string(),
        "bytes": bytes,
        "state": format!("{:?}", record.state).to_lowercase(),
        "required": required,
        "sound": sound,
        "ok": sound >= usize::from(required),
        "replicas": record.replicas.iter().map(|replica| describe_replica(scene, replica)).collect::<Vec<_>>(),
    });
    if let Some(strip) = strip {
        let sound = sound_members(scene, &strip)?;
        value["ok"] = json!(sound == strip.k() + strip.m());
        value["strip"] = json!({ "code": format!("{}+{}", strip.k(), strip.m()), "sound_members": sound });
    }
    Ok(value)
}

/// The strip that stands for its other replicas, if it is encoded.
fn strip_of(scene: &Scene, record: &GroupRecord) -> Result<Option<StripRecord>, Refused> {
    let Some(place) = &record.strip else { return Ok(None) };
    let strip = root::strip(&*scene.snapshot, place.strip).map_err(|e| unreadable(&e))?;
    Ok(strip.filter(|strip| strip.state == StripState::Encoded))
}

/// Members with a replica that can be read.
fn sound_members(scene: &Scene, strip: &StripRecord) -> Result<usize, Refused> {
    let mut sound = 0;
    for group in strip.groups() {
        let member = root::group(&*scene.snapshot, group).map_err(|e| unreadable(&e))?;
        sound += usize::from(member.is_some_and(|member| sound_replicas(scene, &member) > 0));
    }
    Ok(sound)
}

fn sound_replicas(scene: &Scene, record: &GroupRecord) -> usize {
    record.replicas.iter().filter(|replica| is_sound(scene, replica)).count()
}

/// It has all that was acknowledged, as far as is known, and can be read now.
fn is_sound(scene: &Scene, replica: &Replica) -> bool {
    let has_all = matches!(replica.state, ReplicaState::Whole | ReplicaState::Open);
    has_all && scene.view.disks.get(&replica.disk).is_some_and(|disk| disk.is_readable())
}

fn describe_replica(scene: &Scene, replica: &Replica) -> Value {
    let holds = match replica.state {
        ReplicaState::Open => "what was acknowledged".to_owned(),
        ReplicaState::Whole => "all".to_owned(),
        ReplicaState::Holds(bytes) => format!("the first {bytes} bytes"),
        ReplicaState::NotAnswered => "not known yet".to_owned(),
    };
    let disk = scene.view.disks.get(&replica.disk);
    let word = |value: Option<String>| value.map_or_else(|| "-".to_owned(), |value| value.to_lowercase());
    json!({
        "disk": replica.disk.to_string(),
        "node": scene.map.disks.get(&replica.disk).map(|disk| disk.node),
        "holds": holds,
        "disk_state": word(disk.map(|disk| format!("{:?}", disk.state))),
        "health": word(disk.map(|disk| format!("{:?}", disk.health))),
        "sound": is_sound(scene, replica),
    })
}
