// @aws-sdk/client-s3: objects, parts, conditional writes, errors. The closing line is that of harness.py.
"use strict";
const crypto = require("node:crypto");
const s3 = require("@aws-sdk/client-s3");

// Without this the client would go and look for its vendor's own service.
if (!/^http:\/\/(127\.0\.0\.1|localhost):/.test(process.env.ENDPOINT || "")) throw new Error("ENDPOINT must be http://127.0.0.1:PORT");

const client = new s3.S3Client({
  endpoint: process.env.ENDPOINT,
  region: "us-east-1",
  forcePathStyle: true,
  maxAttempts: 1,
  credentials: { accessKeyId: process.env.ACCESS, secretAccessKey: process.env.SECRET },
});
const Bucket = `sdk-js-${crypto.randomBytes(6).toString("hex")}`;
const send = (name, input) => client.send(new s3[`${name}Command`]({ Bucket, ...input }));
const body = (size, seed) => crypto.createHash("shake256", { outputLength: size }).update(String(seed)).digest();

function equal(found, expected, what) {
  const same = Buffer.isBuffer(expected) ? expected.equals(found) : found === expected;
  if (!same) throw new Error(`${what}: found ${String(found).slice(0, 100)}, expected ${String(expected).slice(0, 100)}`);
}

async function read(Key, more) {
  const answer = await send("GetObject", { Key, ...more });
  return Buffer.from(await answer.Body.transformToByteArray());
}

async function rejected(name, input, expected) {
  try {
    await send(name, input);
  } catch (error) {
    return equal(error.name, expected, "error");
  }
  throw new Error(`${name} succeeded although it must not`);
}

const tests = {
  async "a bucket is made"() {
    await send("CreateBucket", {});
    await send("HeadBucket", {});
  },
  async "objects come back as they were"() {
    for (const size of [0, 1, 16385, 70000, 2 << 20]) {
      await send("PutObject", { Key: `o/${size}`, Body: body(size, size) });
      equal(await read(`o/${size}`), body(size, size), `body of ${size} bytes`);
    }
    equal(await read("o/70000", { Range: "bytes=65530-65540" }), body(70000, 70000).subarray(65530, 65541), "range");
  },
  async "an upload in parts is put together"() {
    const parts = [body(5 << 20, "a"), body(1000, "b")];
    const { UploadId } = await send("CreateMultipartUpload", { Key: "parts" });
    const done = [];
    for (const [index, Body] of parts.entries()) {
      const { ETag } = await send("UploadPart", { Key: "parts", UploadId, PartNumber: index + 1, Body });
      done.push({ ETag, PartNumber: index + 1 });
    }
    await send("CompleteMultipartUpload", { Key: "parts", UploadId, MultipartUpload: { Parts: done } });
    equal(await read("parts"), Buffer.concat(parts), "body");
  },
  async "a conditional write is refused when the key is there"() {
    await send("PutObject", { Key: "once", Body: "first", IfNoneMatch: "*" });
    await rejected("PutObject", { Key: "once", Body: "second", IfNoneMatch: "*" }, "PreconditionFailed");
    equal((await read("once")).toString(), "first", "body");
  },
  async "a missing key is reported by its name"() {
    await rejected("GetObject", { Key: "missing" }, "NoSuchKey");
  },
  async "a listing by delimiter has groups"() {
    const page = await send("ListObjectsV2", { Delimiter: "/" });
    equal(page.CommonPrefixes.map((group) => group.Prefix).join(), "o/", "groups");
    equal(page.Contents.map((entry) => entry.Key).join(), "once,parts", "keys");
  },
  async "everything is removed with the bucket"() {
    const page = await send("ListObjectsV2", {});
    await send("DeleteObjects", { Delete: { Objects: page.Contents.map(({ Key }) => ({ Key })) } });
    await send("DeleteBucket", {});
  },
};

(async () => {
  let passed = 0;
  let failed = 0;
  for (const [name, test] of Object.entries(tests)) {
    try {
      await test();
      passed += 1;
      console.log(`ok ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL ${name}: ${error.name}: ${error.message}`);
    }
  }
  console.log(`${passed} passed, ${failed} failed, 0 skipped`);
  process.exitCode = failed ? 1 : 0;
})();
