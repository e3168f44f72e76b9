package page_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/manuals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// withManuals makes the page show what modules say about themselves.
func (b *bench) withManuals() *bench {
	b.options.Manuals = manuals.New(manuals.Options{})
	b.t.Cleanup(func() { b.options.Manuals.Close() })
	return b
}

// pushFiles stores a version of a module with the given files.
func (b *bench) pushFiles(a module.Address, version string, files map[string]string) {
	b.t.Helper()
	data := map[string][]byte{}
	for name, content := range files {
		data[name] = []byte(content)
	}
	content, err := release.Zip(data)
	b.must(err)
	b.pushZip(a, version, content)
}

func (b *bench) pushZip(a module.Address, version string, content []byte) {
	b.t.Helper()
	m := artifact.Version{Owner: a, Version: provider.MustParseVersion(version), Packages: []artifact.Package{{Digest: digest.FromBytes(content), Size: int64(len(content))}}}
	manifest, err := artifact.EncodeZip(m)
	b.must(err)
	repo := b.moduleRepository(a)
	for _, blob := range []artifact.Blob{artifact.Config(), {Descriptor: m.Zip().Layer(), Data: content}, manifest} {
		b.must(repo.Push(b.t.Context(), blob.Descriptor, bytes.NewReader(blob.Data)))
	}
	b.must(repo.Tag(b.t.Context(), manifest.Descriptor, version))
}

// describedFiles are the files of a module with a manual.
func describedFiles() map[string]string {
	return map[string]string{
		"README.md":              "# Net\n\nIt makes *networks*. See [subnets](modules/subnet/README.md), [inputs](#inputs) and ![a picture](x.png).\n\n| a | b |\n|---|---|\n| c | d |\n",
		"variables.tf":           "variable \"name\" {\n type = string\n description = \"The name\"\n}\nvariable \"zones\" {\n type = list(string)\n default = [\"a\"]\n nullable = false\n}\n",
		"outputs.tf":             "output \"secret\" {\n value = 1\n sensitive = true\n description = \"A secret\"\n}\n",
		"main.tf":                "terraform {\n required_version = \">= 1.6\"\n required_providers {\n  aws = { source = \"hashicorp/aws\", version = \">= 5.0\" }\n }\n}\nresource \"aws_vpc\" \"this\" {}\n",
		"modules/subnet/main.tf": "variable \"cidr\" {\n type = string\n}\n", "modules/subnet/README.md": "# Subnet\n", "examples/full/main.tf": "module \"net\" {\n source = \"../..\"\n}\n",
	}
}

// TestManual checks what the page of a module shows of its files, and the comparison with another version.
func TestManual(t *testing.T) {
	b := newBench(t).modules().withManuals()
	files := describedFiles()
	b.pushFiles(net, "1.1.0", files)
	files["variables.tf"] = "variable \"zones\" {\n type = list(string)\n default = []\n}\n"
	b.pushFiles(net, "1.0.0", files)
	b.pushFiles(net, "1.1.0-rc1", files)
	c := b.serve(nil)
	a := c.want(netPage, 200,
		"2 inputs 1 output", "Readme Net It makes networks . See subnets , inputs and a picture.", "Inputs 2 Required name The name Type string Optional zones not null Type list(string) Default [&#34;a&#34;]",
		"Outputs 1 secret sensitive A secret", "Client &gt;= 1.6", "Provider hashicorp/aws &gt;= 5.0", "aws_vpc.this", "subnet 1 input, 0 outputs", "full 0 inputs, 0 outputs",
		"Changes since 1.0.0 added input name can break callers changed input zones : default, nullable can break callers")
	for _, want := range []string{`<a href="?part=modules%2Fsubnet" rel="nofollow noreferrer">subnets</a>`, `<a href="#doc-inputs" rel="nofollow noreferrer">inputs</a>`, `<h3 id="doc-net">Net</h3>`, `<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>`} {
		if !strings.Contains(a.body, want) {
			t.Errorf("no %s in\n%s", want, a.body)
		}
	}
	c.want(netPage+"?part=modules%2Fsubnet", 200, "Readme of modules/subnet Subnet", "Inputs of modules/subnet 1 Required cidr Type string", "It has no outputs.", "The inputs and outputs are the same.")
	if a := c.want(netPage+"?part=modules%2Fsubnet", 200); !strings.Contains(a.body, "net/aws//modules/subnet&#34;") {
		t.Error("the block to copy does not name the submodule")
	}
	c.want(netPage+"?part=modules%2Fnone", 200, "The module has no such folder. Show the module", "subnet 1 input")
	c.want(netPage+"?since=1.1.0-rc1", 200, "Changes since 1.1.0-rc1 added input name")
	c.want(netPage+"?since=7.0.0", 200, "There is no version 7.0.0 to compare with.")
	if a := c.want(netPage+"/1.0.0", 200, "Optional zones Type list(string) Default [] "); strings.Contains(a.text(), "Changes") {
		t.Errorf("the first version has changes:\n%s", a.text())
	}
}

// TestManualStaysText shows that no text of a module becomes markup, and that the page loads nothing for it.
func TestManualStaysText(t *testing.T) {
	b := newBench(t).modules().withManuals()
	const evil = `<script>alert(1)</script><img src=x onerror=alert(1)>`
	hcl := strings.ReplaceAll(evil, `"`, `\"`)
	b.pushFiles(net, "1.0.0", map[string]string{
		"README.md": "# " + evil + "\n\n[a](javascript:alert(1)) <a href=\"javascript:alert(1)\" onclick=\"alert(1)\">b</a> " + evil + "\n\n<iframe src=\"https://example.com\"></iframe>\n<form action=/x><button>c</button></form>\n<h2 id=\"main\" style=\"color:red\">d</h2>\n\n![e](https://example.com/e.png)\n",
		"main.tf": "variable \"a\" {\n type = \"" + hcl + "\"\n description = \"" + hcl + "\"\n default = \"" + hcl + "\"\n deprecated = \"" + hcl + "\"\n}\noutput \"o\" {\n value = 1\n description = \"" + hcl + "\"\n deprecated = \"" + hcl + "\"\n}\n" +
			"terraform {\n required_version = \"" + hcl + "\"\n required_providers {\n  x = { source = \"" + hcl + "\", version = \"" + hcl + "\" }\n }\n}\nmodule \"m\" {\n source = \"" + hcl + "\"\n version = \"" + hcl + "\"\n}\n" +
			"variable \"<b>\" {}\n",
		"main.tf.json":                         `{"variable":{"<script>n</script>":{}},"output":{"<script>n</script>":{"value":1}},"resource":{"<script>n</script>":{"<script>n</script>":{}}},"x":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`,
		"modules/<script>alert(1)<b>/main.tf":  "variable \"<b>\" {}",
		"examples/<script>alert(1)<b>/main.tf": "",
	})
	a := b.serve(nil).want(netPage, 200, "&lt;script&gt;alert(1)&lt;/script&gt;", "Deprecated: ")
	// The page has two scripts of its own, in its head.
	for _, bad := range []string{"<script>", "onerror=alert(1)>", "javascript:", "<iframe", "<form action=/x", "<button>c", `id="main" style`, "<img src=x", "e.png", "<b>"} {
		if strings.Contains(a.body, bad) {
			t.Errorf("%s in\n%s", bad, a.body)
		}
	}
	if strings.Count(a.body, "<img") != 1 || strings.Count(a.body, "<script") != 2 {
		t.Errorf("%s", a.body)
	}
}

// TestManualFails shows the page of a version whose zip cannot be read.
func TestManualFails(t *testing.T) {
	b := newBench(t).modules().withManuals()
	b.pushZip(net, "1.0.0", []byte("PK no zip"))
	b.pushFiles(net, "2.0.0", map[string]string{"README.md": strings.Repeat("* ", 100_000), "main.tf": ""})
	b.pushFiles(net, "2.1.0", map[string]string{"README.md": strings.Repeat("x", 5<<20), "main.tf": ""})
	c := b.serve(nil)
	c.want(netPage+"/1.0.0", 200, "are not shown: the zip is too large, or it is no zip.", "Digest sha256:")
	c.want(netPage+"/2.0.0", 200, "The Readme is too long to be shown.", "That version cannot be read now.", "It has no inputs.")
	c.want(netPage+"/2.1.0", 200, "Not read README.md: it has 5242880 bytes, more than are read", "The inputs and outputs are the same.")
	b.pushFiles(net, "3.0.0", describedFiles())
	b.lie("/blobs/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "secret.internal", http.StatusServiceUnavailable)
	})
	if a := b.serve(nil).want(netPage+"/3.0.0", 200, "cannot be read now. Load the page again in a moment.", "Digest sha256:"); strings.Contains(a.body, "secret.internal") {
		t.Errorf("%s", a.body)
	}
	denied, err := provider.ParseConstraint("3.0.0")
	b.must(err)
	b.catalog.Deny = []catalog.Deny{{Pattern: net.Pattern(), Versions: denied}}
	b.serve(nil).want(netPage+"/3.0.0", 451)
}
