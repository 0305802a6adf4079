//! What a server says when it is ready.
#![allow(clippy::print_stdout)]

use crate::cli::ServerArgs;
use crate::credentials::RootKeys;
use std::io::Write as _;
use std::net::SocketAddr;

/// One line of JSON, or an endpoint, keys where they were just made, and examples to copy.
pub fn show(args: &ServerArgs, endpoint: SocketAddr, admin: SocketAddr, keys: &RootKeys, made: bool) {
    if args.json {
        let line = serde_json::json!({
            "endpoint": format!("http://{endpoint}"),
            "admin": format!("http://{admin}"),
            "pid": std::process::id(),
        });
        println!("{line}");
    } else {
        println!("{}", text(args, endpoint, admin, keys, made));
    }
    let _ = std::io::stdout().flush();
}

fn text(args: &ServerArgs, endpoint: SocketAddr, admin: SocketAddr, keys: &RootKeys, made: bool) -> String {
    let folder = args.data_dirs[0].display();
    let access = &keys.access_key;
    let secret = if made { keys.secret_key.as_str() } else { "<the root secret key>" };
    let shown = if made {
        format!(
            "\n  Access key  {access}\n  Secret key  {secret}\n  (made now; kept in {folder}/credentials, shown this once)\n"
        )
    } else {
        format!("\n  Access key  {access}\n  Secret key  from the environment, or in {folder}/credentials\n")
    };
    let region = &args.region;
    format!(
        "Ashlar is ready.\n\n  S3          http://{endpoint}\n  Admin       http://{admin}\n{shown}
Try it with the AWS command line:

  export AWS_ACCESS_KEY_ID={access} AWS_SECRET_ACCESS_KEY={secret} AWS_REGION={region}
  aws --endpoint-url http://{endpoint} s3 mb s3://first
  aws --endpoint-url http://{endpoint} s3 cp /etc/hostname s3://first/

rclone:

  rclone lsd :s3,provider=Other,endpoint='http://{endpoint}',access_key_id={access},secret_access_key={secret}:

boto3:

  boto3.client('s3', endpoint_url='http://{endpoint}', aws_access_key_id='{access}', aws_secret_access_key='{secret}', region_name='{region}')
"
    )
}
