package clientsetup_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/hcl"
	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/app/clientsetup"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
)

func TestGatewayURL(t *testing.T) {
	for listen, want := range map[string]string{
		"localhost:8443": "https://localhost:8443/",
		"[::1]:8443":     "https://[::1]:8443/",
		":8443":          "", "0.0.0.0:8443": "", "[::]:8443": "", "localhost:0": "", "localhost": "",
	} {
		got, err := clientsetup.GatewayURL(listen)
		if got != want || (err == nil) != (want != "") || err != nil && hint.Of(err) == "" {
			t.Errorf("%s: %q, %v, want %q", listen, got, err, want)
		}
	}
}

// TestModuleHost shows that no host block hides the other modules of a public registry.
func TestModuleHost(t *testing.T) {
	named := config.ModuleText{Include: []subject.Pattern{module.MustParsePattern("registry.terraform.io/acme/*/*")}}
	for _, tt := range []struct {
		host    svchost.Hostname
		modules []config.ModuleText
		want    bool
	}{
		{"registry.acme.example", nil, true},
		{"registry.terraform.io", nil, false},
		{"registry.terraform.io", []config.ModuleText{named}, true},
		{"registry.opentofu.org", []config.ModuleText{named}, false},
	} {
		s := clientsetup.Setup{URL: "https://gateway.example/", Modules: tt.modules}
		got, err := s.ModuleHost(tt.host)
		if (err == nil) != tt.want || strings.Contains(got, "gateway.example/hosts/"+string(tt.host)) != tt.want {
			t.Errorf("%s with %v: %q, %v", tt.host, tt.modules, got, err)
		}
	}
}

// TestPulledModuleHosts shows that a host whose modules are pulled through has a host block, and a public registry only if all
// of its modules are.
func TestPulledModuleHosts(t *testing.T) {
	s := clientsetup.Setup{URL: "https://gateway.example/", Pulled: []config.PulledHost{{Name: "registry.opentofu.org", Whole: true}, {Name: "registry.terraform.io"}, {Name: "native.example"}, {Name: "gateway.example"}}, Stored: []svchost.Hostname{"registry.acme.example"}}
	if got := fmt.Sprint(s.ModuleHosts()); got != "[native.example registry.acme.example registry.opentofu.org]" {
		t.Errorf("the hosts are %s", got)
	}
	if got, err := s.ModuleHost("registry.opentofu.org"); err != nil || !strings.Contains(got, "gateway.example/hosts/registry.opentofu.org/v1/modules/") {
		t.Errorf("%q, %v", got, err)
	}
}

// TestTexts shows how the setup changes each text. The test
// cmd/ocibridge.TestScripts/config-client compares whole texts.
func TestTexts(t *testing.T) {
	const at = "https://gateway.example/"
	publicHosts := []svchost.Hostname{"registry.opentofu.org", "registry.terraform.io"}
	mirror := func(template string, include ...string) config.MirrorText {
		return config.MirrorText{Template: template, Include: include}
	}
	modules := func(fallThrough bool, include ...string) clientsetup.Setup {
		text := config.ModuleText{FallThrough: fallThrough}
		for _, p := range include {
			text.Include = append(text.Include, module.MustParsePattern(p))
		}
		return clientsetup.Setup{URL: at, Mirrors: []config.MirrorText{mirror("ghcr.io/a/${type}")}, Modules: []config.ModuleText{text}}
	}
	for name, tc := range map[string]struct {
		setup clientsetup.Setup
		piece string
		has   []string
		lacks []string
		err   string
	}{
		"the mirror's URL has one slash":        {setup: clientsetup.Setup{URL: at}, piece: "terraform", has: []string{`"https://gateway.example/providers/"`}},
		"OpenTofu trusts all hashes":            {setup: clientsetup.Setup{URL: at}, piece: "tofu", has: []string{"trust_all_hashes = true"}},
		"the public hosts by default":           {setup: clientsetup.Setup{URL: at}, piece: "host", has: []string{`host "registry.opentofu.org"`, `host "registry.terraform.io"`, `"modules.v1"   =`}, lacks: []string{"credentials", "# "}},
		"modules get no token":                  {setup: clientsetup.Setup{URL: at, Tokens: true}, piece: "host", has: []string{`# "modules.v1"`, `credentials "registry.terraform.io"`}},
		"only the hosts that mirrors include":   {setup: clientsetup.Setup{URL: at, Mirrors: []config.MirrorText{mirror("ghcr.io/a/${type}", "registry.acme.example/*/*")}}, piece: "host", has: []string{`host "registry.acme.example"`}, lacks: []string{"registry.opentofu.org", "modules"}},
		"any host includes the public ones":     {setup: clientsetup.Setup{URL: at, Mirrors: []config.MirrorText{mirror("ghcr.io/a/${type}", "*/*/*")}}, piece: "host", has: []string{`host "registry.opentofu.org"`}},
		"a mirrored host of modules":            {setup: modules(false, "registry.acme.example/*/*/*"), piece: "host", has: []string{"host \"registry.acme.example\" {\n  services = {\n    \"modules.v1\" = \"https://gateway.example/hosts/registry.acme.example/v1/modules/\"\n  }\n"}},
		"a public host that modules name":       {setup: modules(false, "registry.terraform.io/acme/*/*"), piece: "host", has: []string{`"modules.v1"   = "https://gateway.example/hosts/registry.terraform.io/v1/modules/"`, `"providers.v1" = "https://gateway.example/hosts/registry.terraform.io/v1/providers/"`}},
		"public modules are not hidden":         {setup: modules(false), piece: "host", has: []string{`"modules.v1"   = "https://registry.terraform.io/v1/modules/"`}, lacks: []string{"gateway.example/hosts/registry.terraform.io/v1/modules"}},
		"public modules by falling through":     {setup: modules(true, "*/*/*/*"), piece: "host", has: []string{`"modules.v1"   = "https://gateway.example/hosts/registry.terraform.io/v1/modules/"`, `"modules.v1"   = "https://gateway.example/hosts/registry.opentofu.org/v1/modules/"`}},
		"the gateway's own modules":             {setup: modules(false, "gateway.example/*/*/*"), piece: "host", lacks: []string{`host "gateway.example"`}},
		"hosts of stored modules":               {setup: clientsetup.Setup{URL: at, Stored: []svchost.Hostname{"gateway.example", "registry.acme.example"}}, piece: "host", has: []string{"host \"registry.acme.example\" {\n  services = {\n    \"modules.v1\" = \"https://gateway.example/hosts/registry.acme.example/v1/modules/\"\n  }\n", `host "registry.opentofu.org"`}, lacks: []string{`host "gateway.example"`}},
		"hosts of stored providers":             {setup: clientsetup.Setup{URL: at, StoredProviders: []svchost.Hostname{"gateway.example", "registry.acme.example"}}, piece: "host", has: []string{"host \"registry.acme.example\" {\n  services = {\n    \"providers.v1\" = \"https://gateway.example/hosts/registry.acme.example/v1/providers/\"\n  }\n", `host "registry.opentofu.org"`}, lacks: []string{`host "gateway.example"`}},
		"stored modules hide no public ones":    {setup: clientsetup.Setup{URL: at, Stored: publicHosts}, piece: "host", has: []string{`"modules.v1"   = "https://registry.terraform.io/v1/modules/"`}, lacks: []string{"gateway.example/hosts/registry.terraform.io/v1/modules"}},
		"own modules and a port":                {setup: clientsetup.Setup{URL: "https://gateway.example:8443/", Stored: []svchost.Hostname{"gateway.example"}}, piece: "host", lacks: []string{`host "gateway.example"`}},
		"another port of the gateway's host":    {setup: clientsetup.Setup{URL: "https://gateway.example:8443/", Stored: []svchost.Hostname{"gateway.example:9443"}}, piece: "host", has: []string{`host "gateway.example:9443"`}},
		"Renovate, stored modules":              {setup: clientsetup.Setup{URL: at, Stored: []svchost.Hostname{"registry.acme.example"}}, piece: "renovate", has: []string{`"terraform-provider"`, `"registry.acme.example/**"`}},
		"modules alone":                         {setup: clientsetup.Setup{URL: at, Modules: modules(false, "registry.terraform.io/acme/*/*").Modules}, piece: "host", has: []string{`"modules.v1"   = "https://gateway.example/`, `"providers.v1" = "https://registry.terraform.io/v1/providers/"`}, lacks: []string{"opentofu"}},
		"modules alone, no network mirror":      {setup: clientsetup.Setup{URL: at, Modules: modules(false).Modules}, piece: "tofu", err: "no oci_mirror block is configured"},
		"modules alone, no oci_mirror":          {setup: clientsetup.Setup{URL: at, Modules: modules(false).Modules}, piece: "oci", err: "no oci_mirror block is configured"},
		"modules alone, no Renovate":            {setup: clientsetup.Setup{URL: at, Modules: modules(false).Modules}, piece: "renovate", err: "no oci_mirror block is configured"},
		"a module of a gateway on port 443":     {setup: clientsetup.Setup{URL: at}, piece: "module", has: []string{`source  = "gateway.example/NAMESPACE/NAME/SYSTEM"`}, lacks: []string{"#"}},
		"a module of the gateway":               {setup: clientsetup.Setup{URL: "https://gateway.example:8443/"}, piece: "module", has: []string{"# Push it without the port, as gateway.example/NAMESPACE/NAME/SYSTEM.\n", `source  = "gateway.example:8443/NAMESPACE/NAME/SYSTEM"`}},
		"no module of a gateway without a dot":  {setup: clientsetup.Setup{URL: "https://localhost:8443/"}, piece: "module", err: "no module address can name the gateway"},
		"no module of a gateway below a path":   {setup: clientsetup.Setup{URL: at + "x/"}, piece: "module", err: "no module address can name the gateway"},
		"the embedded registry":                 {setup: clientsetup.Setup{URL: at}, piece: "oci", has: []string{`"gateway.example/${hostname}/`}, lacks: []string{"oci_credentials"}},
		"the embedded registry asks for tokens": {setup: clientsetup.Setup{URL: at, Tokens: true}, piece: "oci", has: []string{`oci_credentials "gateway.example"`, `"TOKEN"`}},
		"a registry has its own logins":         {setup: clientsetup.Setup{URL: at, Tokens: true, Mirrors: []config.MirrorText{mirror("ghcr.io/a/${type}")}}, piece: "oci", has: []string{`# oci_credentials "ghcr.io"`, `"ghcr.io/a/${type}"`}, lacks: []string{"TOKEN"}},
		"the embedded registry below a path":    {setup: clientsetup.Setup{URL: at + "x/"}, piece: "oci", err: "below a path"},
		"a pattern that OpenTofu refuses":       {setup: clientsetup.Setup{URL: at, Mirrors: []config.MirrorText{mirror("ghcr.io/a/${type}", "acme.example/a_b/*", "acme.example/good/*")}}, piece: "oci", has: []string{`["acme.example/good/*"]`}},
		"only patterns that OpenTofu refuses":   {setup: clientsetup.Setup{URL: at, Mirrors: []config.MirrorText{mirror("ghcr.io/a/${type}", "acme.example/a_b/*")}}, piece: "oci", err: "only providers that OpenTofu refuses"},
		"one lock command for each mirror":      {setup: clientsetup.Setup{URL: at, Mirrors: []config.MirrorText{mirror("ghcr.io/a/${type}", "acme.example/*/*"), mirror("ghcr.io/b/${type}")}}, piece: "lock", has: []string{"# for acme.example/*/*:\n", "-oci-mirror='ghcr.io/a/{type}'", "-oci-mirror='ghcr.io/b/{type}'"}},
		"no URI template":                       {setup: clientsetup.Setup{URL: at, Mirrors: []config.MirrorText{mirror(`ghcr.io/${type == "a" ? "b" : type}`)}}, piece: "lock", err: "no URI template means the same"},
		"a token's port":                        {setup: clientsetup.Setup{URL: "https://gateway.example:8443/"}, piece: "credentials", has: []string{`credentials "gateway.example:8443"`}},
		"a job's variables":                     {setup: clientsetup.Setup{URL: "https://my-gateway.example/", CLIConfig: "ci.tfrc", CAFile: "ca.pem"}, piece: "ci", has: []string{"TF_CLI_CONFIG_FILE=ci.tfrc\n", "TF_TOKEN_my__gateway_example=TOKEN\n", "SSL_CERT_FILE=ca.pem\n"}},
		"Terragrunt's token":                    {setup: clientsetup.Setup{URL: at, Tokens: true}, piece: "terragrunt", has: []string{"network_mirror", `credentials "gateway.example"`}, lacks: []string{"#"}},
		"Terragrunt's tokens for a port":        {setup: clientsetup.Setup{URL: "https://gateway.example:8443/", Tokens: true}, piece: "terragrunt", has: []string{`credentials "gateway.example:8443" {`, "# Terragrunt's own", `credentials "gateway.example" {`}},
		"Renovate asks for the mirrored hosts":  {setup: clientsetup.Setup{URL: at, Mirrors: []config.MirrorText{mirror("ghcr.io/a/${type}", "registry.acme.example/*/*")}}, piece: "renovate", has: []string{`"https://gateway.example/hosts/registry.acme.example"`}, lacks: []string{"registry.opentofu.org", "hostRules"}},
		"Renovate's token is the bot's":         {setup: clientsetup.Setup{URL: at, Tokens: true}, piece: "renovate", has: []string{`"terraform-provider"`}, lacks: []string{"hostRules", "TOKEN"}},
		"the bot's token":                       {setup: clientsetup.Setup{URL: at, Tokens: true}, piece: "renovate-bot", has: []string{`RENOVATE_HOST_RULES='[{"matchHost": "https://gateway.example/", "token": "TOKEN"}]'`}},
		"the bot of an open gateway":            {setup: clientsetup.Setup{URL: at}, piece: "renovate-bot", has: []string{`RENOVATE_HOST_RULES='[{"matchHost": "https://gateway.example/"}]'`}},
		"Renovate, modules of a host":           {setup: modules(false, "registry.acme.example/*/*/*", "gateway.example/*/*/*"), piece: "renovate", has: []string{`"terraform-provider"`, `"registry.acme.example/**"`, `"https://gateway.example/hosts/registry.acme.example"`, `"overridePackageName": "{{{replace '^[^/]+/' '' depName}}}"`}, lacks: []string{"gateway.example/**", "*/*/*", "matchDepTypes"}},
		"Renovate, a rule for each host":        {setup: modules(false, "bücher.example/*/*/*", "registry.acme.example/*/*/*"), piece: "renovate", has: []string{`"xn--bcher-kva.example/**",`, `"bücher.example/**"`, `"https://gateway.example/hosts/xn--bcher-kva.example"`, `"https://gateway.example/hosts/registry.acme.example"`}},
		"Renovate, modules without a host":      {setup: modules(true), piece: "renovate", has: []string{"        \"*/*/*\"\n      ],\n      \"registryUrls\": [\n        \"https://gateway.example/hosts/registry.terraform.io\"\n", `"registry.opentofu.org/**"`, `"matchDepTypes"`}},
		"Renovate, no named hosts of modules":   {setup: modules(false, "*/*/*/*"), piece: "renovate", lacks: []string{"terraform-module"}},
		"Renovate, modules alone":               {setup: clientsetup.Setup{URL: at, Modules: modules(false, "registry.acme.example/*/*/*").Modules}, piece: "renovate", has: []string{"terraform-module"}, lacks: []string{"terraform-provider", "hostRules"}},
		"Renovate, own modules alone, a token":  {setup: clientsetup.Setup{URL: at, Tokens: true, Modules: modules(false, "gateway.example/*/*/*").Modules}, piece: "renovate", err: "no oci_mirror block is configured"},
		"a workflow's secret":                   {setup: clientsetup.Setup{URL: at, Tokens: true, CAFile: "it's.pem"}, piece: "github-actions", has: []string{"\n      - run: terraform init\n        env:\n          TF_TOKEN_gateway_example: ${{ secrets.OCIBRIDGE_TOKEN }}\n", "SSL_CERT_FILE: 'it''s.pem'\n"}},
		"a workflow's secret for a port":        {setup: clientsetup.Setup{URL: "https://gateway.example:8443/", Tokens: true}, piece: "github-actions", has: []string{`- run: 'env "TF_TOKEN_gateway_example:8443=$OCIBRIDGE_TOKEN" terraform init'`, "\n          OCIBRIDGE_TOKEN: ${{"}},
		"a job's masked variable":               {setup: clientsetup.Setup{URL: at, Tokens: true, CAFile: "ca.pem"}, piece: "gitlab-ci", has: []string{"    TF_TOKEN_gateway_example: $OCIBRIDGE_TOKEN\n", "    SSL_CERT_FILE: ca.pem\n"}},
		"a job without a token":                 {setup: clientsetup.Setup{URL: at}, piece: "gitlab-ci", lacks: []string{"TOKEN", "variables"}},
		"Dependabot below a path":               {setup: clientsetup.Setup{URL: at + "x/"}, piece: "dependabot", err: "below a path"},
		"Pulumi needs the gateway's own name":   {setup: clientsetup.Setup{URL: at}, piece: "pulumi", has: []string{"pulumi package add terraform-provider gateway.example/NAMESPACE/TYPE\n"}},
		"Pulumi below a path":                   {setup: clientsetup.Setup{URL: at + "x/"}, piece: "pulumi", err: "below a path"},
		"Dependabot, modules alone":             {setup: clientsetup.Setup{URL: at, Modules: modules(false).Modules}, piece: "dependabot", err: "no oci_mirror block is configured"},
		"Pulumi, modules alone":                 {setup: clientsetup.Setup{URL: at, Modules: modules(false).Modules}, piece: "pulumi", err: "no oci_mirror block is configured"},
		"an unknown URL for Renovate":           {setup: clientsetup.Setup{NoURL: hint.New("no URL", "give one")}, piece: "renovate", err: "no URL"},
		"an unknown URL":                        {setup: clientsetup.Setup{NoURL: hint.New("no URL", "give one")}, piece: "tofu", err: "no URL"},
	} {
		t.Run(name, func(t *testing.T) {
			texts, err := tc.setup.Texts(tc.piece)
			if tc.err != "" {
				if len(texts) > 0 || err == nil || !strings.Contains(err.Error(), tc.err) || hint.Of(err) == "" {
					t.Errorf("%v, %v, want the error %q with a hint", texts, err, tc.err)
				}
				return
			}
			if err != nil || len(texts) != 1 {
				t.Fatalf("%v, %v", texts, err)
			}
			for _, part := range tc.has {
				if !strings.Contains(texts[tc.piece], part) {
					t.Errorf("the text lacks %q:\n%s", part, texts[tc.piece])
				}
			}
			for _, part := range tc.lacks {
				if strings.Contains(texts[tc.piece], part) {
					t.Errorf("the text contains %q:\n%s", part, texts[tc.piece])
				}
			}
		})
	}
}

// TestGuide shows that a guide contains all texts that can be written. If other texts are
// missing, the guide says how to get them.
func TestGuide(t *testing.T) {
	s := &clientsetup.Setup{URL: "https://localhost:8443/"}
	texts, missing := s.Texts("")
	if len(texts) != len(clientsetup.Names())-1 || texts["module"] != "" || missing != nil {
		t.Fatalf("%v, %v", texts, missing)
	}
	if got := s.Guide(texts, missing); !strings.Contains(got, "env 'TF_TOKEN_localhost:8443=TOKEN' tofu init\n") || !strings.Contains(got, "SSL_CERT_FILE") || strings.Contains(got, "missing") {
		t.Errorf("a complete guide:\n%s", got)
	}
	s = &clientsetup.Setup{NoURL: hint.New("no URL", "give one"), Mirrors: []config.MirrorText{{Template: `ghcr.io/${type == "a" ? "b" : type}`}}}
	texts, missing = s.Texts("")
	if len(texts) != 1 || texts["oci"] == "" {
		t.Fatalf("%v, %v", texts, missing)
	}
	if got := s.Guide(texts, missing); !strings.HasSuffix(got, "Some texts are missing: no URL. To get them, give one.\n") || strings.Contains(got, "URI template") {
		t.Errorf("an incomplete guide:\n%s", got)
	}
}

// TestMenu shows that a menu has each text once, either as a line that fits a terminal, or among those that cannot be
// written.
func TestMenu(t *testing.T) {
	for _, s := range []*clientsetup.Setup{{URL: "https://localhost:8443/"}, {NoURL: hint.New("no URL", "give one")}} {
		texts, _ := s.Texts("")
		menu := s.Menu(texts)
		_, others, _ := strings.Cut(menu, "no text for ")
		for _, name := range clientsetup.Names() {
			listed := regexp.MustCompile(`(?m)^  ` + name + ` +[a-zA-Z]`).MatchString(menu)
			other := strings.Contains(others, name+",") || strings.Contains(others, name+":")
			if listed != (texts[name] != "") || other == listed {
				t.Errorf("%s is a line: %v, without a text: %v, in\n%s", name, listed, other, menu)
			}
		}
		for line := range strings.SplitSeq(menu, "\n") {
			if strings.HasPrefix(line, " ") && len(line) > 80 {
				t.Errorf("%d characters: %s", len(line), line)
			}
		}
	}
}

// TestTerragruntReads shows that Terragrunt's provider cache server reads the printed file. Terragrunt decodes the blocks
// below by the same library, and fails on any other installation method, such as oci_mirror.
func TestTerragruntReads(t *testing.T) {
	for _, tokens := range []bool{false, true} {
		s := &clientsetup.Setup{URL: "https://gateway.example/", Tokens: tokens}
		texts, err := s.Texts("terragrunt")
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Credentials  map[string]map[string]any `hcl:"credentials"`
			Installation []map[string][]struct {
				URL string `hcl:"url"`
			} `hcl:"provider_installation"`
			Unused []string `hcl:",unusedKeys"`
		}
		if err := hcl.Decode(&got, texts["terragrunt"]); err != nil {
			t.Fatal(err)
		}
		want := "[map[network_mirror:[{https://gateway.example/providers/}]]]"
		if fmt.Sprint(got.Installation) != want || len(got.Unused) > 0 {
			t.Errorf("tokens %t: %v, want %s; not read: %v", tokens, got.Installation, want, got.Unused)
		}
		if token := got.Credentials["gateway.example"]["token"]; (token == "TOKEN") != tokens {
			t.Errorf("tokens %t: the token is %v", tokens, token)
		}
	}
}
