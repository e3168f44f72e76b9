# The configuration of the services in compose.yaml that run ocibridge.
oci_mirror {
  repository_template = "registry:5000/providers/${hostname}/${namespace}/${type}"
}

registry "registry:5000" {
  plain_http = true
}

provider "registry.opentofu.org/hashicorp/random" {
  versions  = "3.7.2"
  platforms = ["linux_amd64", "linux_arm64", "darwin_arm64"]
}

gateway {
  listen     = ":8443"
  public_url = "https://localhost:8443/"
  tls {
    self_signed = true
  }
  cache {
    directory = "/var/cache/ocibridge"
    max_size  = "1GiB"
  }
}
