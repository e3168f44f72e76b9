# An example of ocibridge.hcl with every block
#
# "ocibridge help configuration" explains each argument.
#
# ocibridge reads the first of these files that exists: ./ocibridge.hcl,
# $XDG_CONFIG_HOME/ocibridge/ocibridge.hcl (~/.config by default) and
# /etc/ocibridge/ocibridge.hcl. --config or OCIBRIDGE_CONFIG names another one.
# "ocibridge config check" finds mistakes in it, "ocibridge config show" prints
# the effective settings and their sources.

# The folder of the embedded registry (unless an oci_mirror block names another
# one) and of other data of serve. Paths are relative to the folder of this file.
data = "data"

# How many packages a push transfers at once.
jobs = 8

# The lowest level to log, and the format of serve's log: text or json.
log_level  = "info"
log_format = "json"

# The repository of each provider, with the syntax of OpenTofu's CLI
# configuration. The first block that covers a provider applies.
oci_mirror {
  repository_template = "harbor.internal:8443/acme/${namespace}/${type}"
  include             = ["registry.acme.example/*/*"]
}
oci_mirror {
  repository_template = "ghcr.io/acme/providers/${hostname}/${namespace}/${type}"
  exclude             = ["registry.terraform.io/*/*"]
}

# The repository of each module. fall_through redirects clients to the origin of a
# public module that the registry lacks.
module_mirror {
  repository_template = "harbor.internal:8443/acme/modules/${namespace}/${name}/${system}"
  include             = ["registry.acme.example/*/*/*"]
}
module_mirror {
  repository_template = "ghcr.io/acme/modules/${hostname}/${namespace}/${name}/${system}"
  include             = ["registry.opentofu.org/*/*/*", "registry.terraform.io/*/*/*"]
  fall_through        = true
}

# Logins. Logins that docker, podman and helm have stored need no block.
oci_credentials "harbor.internal:8443/acme" {
  username = "robot$ocibridge"        # a $ needs no escape
  password = file("harbor-password")  # or env("HARBOR_PASSWORD")
}
oci_credentials "ghcr.io" {
  docker_credentials_helper = "osxkeychain"
}
oci_default_credentials {
  discover_ambient_credentials = true
}

# How to connect to a registry.
registry "harbor.internal:8443" {
  ca_file             = "harbor-ca.pem"
  timeout             = "30s"
  requests_per_second = 20
  max_concurrent      = 8
}
registry "registry.internal:5000" {
  plain_http = true
}

# The settings of "ocibridge serve".
gateway {
  listen     = ":8443"
  public_url = "https://providers.acme.example/"

  tls {
    cert_file = "tls.pem"
    key_file  = "tls.key"
    # Or instead, for a public name:
    # acme {
    #   accept_terms = true
    # }
  }

  # Serve only versions that are signed by keys in trust blocks.
  verify = "required"

  redirect       = false
  tag_ttl        = "30s"
  stale_if_error = "24h"
  deny           = ["registry.opentofu.org/acme/widget@1.4.0"]

  cache {
    directory = "/var/cache/ocibridge"
    max_size  = "20GiB"
  }

  capability_key_file = "capability.key"
  token "ci" {
    sha256  = env("CI_TOKEN_SHA256")
    include = ["registry.opentofu.org/*/*", "registry.acme.example/platform/*/*"]
    expires = "2030-01-31"
  }
  token "operators" {
    sha256   = env("OPERATOR_TOKEN_SHA256")
    operator = true
  }
  oidc "github" {
    issuer   = "https://token.actions.githubusercontent.com"
    audience = "https://providers.acme.example"
    rule {
      claims = { repository_owner = "acme" }
    }
  }

  # People get a token with "terraform login providers.acme.example", or "tofu login".
  oidc "people" {
    issuer   = "https://login.acme.example"
    audience = "https://providers.acme.example"
    rule {
      claims = { groups = "engineering" }
    }
  }
  login {
    client = "terraform-cli"
    authz  = "https://login.acme.example/authorize"
    token  = "https://login.acme.example/token"
    ports  = [10000, 10010]
    scopes = ["openid", "groups"]
  }
}

# Which packages to accept.
trust "registry.opentofu.org/hashicorp/*" {
  keys          = ["C874 011F 0AB4 0511 0D02 1055 3436 5D94 72D7 468F"]
  strict_expiry = true
}

# Which versions clients get: those that your own organisation has signed. A pattern
# of four parts is for modules.
trust "registry.acme.example/*/*/*" {
  require "platform team" {
    public_key = file("platform.pub")
    enforce    = false # only report for now
  }
}

# The key with which "ocibridge push" and "sync" approve what they have verified.
sign {
  key = "platform.key"
}

# A provider that "ocibridge sync" keeps in the registry.
provider "registry.opentofu.org/hashicorp/null" {
  versions  = "~> 3.2"
  platforms = ["linux_amd64", "darwin_arm64"]
  latest    = 3
  cooldown  = "7d"
}

# Public modules that sync keeps, with the modules that they call.
module "registry.opentofu.org/cloudposse/label/null" {
  versions = "~> 0.24"
  latest   = 2
  cooldown = "7d"
  closure  = true
}

# Providers that the gateway fetches at their first request.
pull_through {
  include   = ["registry.opentofu.org/hashicorp/*"]
  platforms = ["linux_amd64"]
  cooldown  = "72h"
  max_size  = "1GiB"

  # With the embedded registry, which this file does not use, ocibridge gc removes what nobody uses:
  #
  #   retention {
  #     unused   = "90d"
  #     max_size = "200GiB"
  #   }
}
