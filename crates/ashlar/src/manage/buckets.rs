//! Buckets: how they are kept, and changing that.

use super::policy::{Effective, Room, judge, wished};
use super::{Manager, Scene, store_error};
use admin::operations::{BucketWish, Refused};
use object_controller::api::{BucketChange, ObjectStore};
use serde_json::{Value, json};
use types::BucketName;
use types::bucket::{BucketInfo, Durability, Erasure};

impl Manager {
    pub(super) async fn buckets(&self) -> Result<Value, Refused> {
        let scene = self.scene().await?;
        let room = self.room(&scene);
        let mut all: Vec<&BucketInfo> = scene.buckets.values().collect();
        all.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
        let buckets: Vec<Value> = all.iter().map(|bucket| describe(bucket, &room)).collect();
        Ok(json!({ "buckets": buckets }))
    }

    pub(super) async fn bucket(&self, name: &str) -> Result<Value, Refused> {
        let scene = self.scene().await?;
        Ok(describe(find(&scene, name)?, &self.room(&scene)))
    }

    pub(super) async fn set_durability(&self, name: &str, wish: &BucketWish) -> Result<Value, Refused> {
        let scene = self.scene().await?;
        let (bucket, room) = (find(&scene, name)?, self.room(&scene));
        let durability = wished(bucket.durability, wish).map_err(Refused::Wrong)?;
        let warnings = judge(&durability, &room).map_err(Refused::Breaks)?;
        let changed = self.controller.change_bucket(bucket, BucketChange::Durability(durability)).await;
        let changed = changed.map_err(|e| store_error(&e))?;
        let mut value = describe(&changed, &room);
        value["warnings"] = json!(warnings);
        Ok(value)
    }

    fn room(&self, scene: &Scene) -> Room {
        Room::of(&scene.map, self.controller.rf(), (self.erasure)(&scene.view))
    }
}

fn find<'a>(scene: &'a Scene, name: &str) -> Result<&'a BucketInfo, Refused> {
    let unknown = || Refused::Unknown(format!("there is no bucket {name}"));
    let wanted = BucketName::new(name).map_err(|_| unknown())?;
    scene.buckets.values().find(|bucket| bucket.name == wanted).ok_or_else(unknown)
}

/// What it has, and whether it says so itself.
fn describe(bucket: &BucketInfo, room: &Room) -> Value {
    let Durability { rf, erasure, erasure_after_ms } = bucket.durability;
    let effective = Effective::of(&bucket.durability, room);
    let by = |own: bool| if own { "bucket" } else { "cluster" };
    let code = effective.code.map_or_else(|| "none".to_owned(), |(k, m)| format!("{k}+{m}"));
    json!({
        "bucket": bucket.name.as_str(),
        "rf": effective.rf,
        "rf_said_by": by(rf.is_some()),
        "ec": code,
        "ec_said_by": by(erasure != Erasure::ByCluster),
        "ec_after_ms": effective.after_ms,
        "ec_after_said_by": by(erasure_after_ms.is_some()),
    })
}
