package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// manualReadme has everything that READMEs have, and what they must not have.
const manualReadme = "# Network\n\n[![build](https://img.example/badge.svg)](https://ci.example/build) <a href=\"javascript:alert(1)\" onclick=\"alert(1)\">run</a>\n\n" +
	"Creates a *network* with **subnets**; see [the submodule](modules/subnet) and [examples](examples/complete/README.md).\n\n" +
	"## Usage\n\n```hcl\nmodule \"network\" {\n  source  = \"registry.example.com/acme/network/aws\"\n  version = \"~> 1.0\"\n\n  name  = \"main\"\n  zones = [\"eu-central-1a\", \"eu-central-1b\", \"eu-central-1c\"]\n}\n```\n\n" +
	"<details><summary>More</summary>\n\n- [x] done\n- [ ] to do\n\n</details>\n\n> A quote\n\n<!-- BEGIN_TF_DOCS -->\n### Requirements\n\n| Name | Version | Description of the requirement, which is long enough to wrap |\n|------|:-------:|---:|\n| <a name=\"x\"></a> [terraform](#usage) | >= 1.3 | a |\n| aws | >= 5.0 | a-word-that-is-so-long-that-it-does-not-fit-on-the-screen-of-a-phone-at-all |\n" +
	"<!-- END_TF_DOCS -->\n\n<script>document.title = 'injected'</script><img src=x onerror=\"document.title = 'injected'\">\n<iframe src=\"https://example.com\"></iframe>\n"

// TestModuleManual shows the README, inputs and outputs of a module in a browser, and audits the page.
func TestModuleManual(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	push := func(version, variables string) {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"README.md": manualReadme, "variables.tf": variables,
			"outputs.tf":               "output \"id\" {\n  description = \"The ID of the network\"\n  value       = 1\n}\n\noutput \"password\" {\n  value     = 2\n  sensitive = true\n}\n",
			"main.tf":                  "terraform {\n  required_version = \">= 1.3\"\n  required_providers {\n    aws = {\n      source  = \"hashicorp/aws\"\n      version = \">= 5.0\"\n    }\n  }\n}\n\nresource \"aws_vpc\" \"this\" {}\n\nmodule \"subnet\" {\n  source = \"./modules/subnet\"\n}\n",
			"modules/subnet/main.tf":   "variable \"cidr\" {\n  type = string\n}\n",
			"modules/subnet/README.md": "# Subnet\n", "examples/complete/main.tf": "module \"this\" {\n  source = \"../..\"\n}\n",
		} {
			at := filepath.Join(dir, filepath.FromSlash(name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		s.mustRun("module", "push", dir, "--as", vpc+"@"+version, "--data", s.data)
	}
	variables := "variable \"name\" {\n  description = \"Name of all resources, <b>not bold</b>\"\n  type        = string\n}\n\nvariable \"zones\" {\n  type    = list(string)\n  default = []\n}\n\n" +
		"variable \"groups\" {\n  description = \"Groups.\\nOne for each zone.\"\n  type = map(object({\n    size   = optional(number, 1)\n    labels = optional(map(string), {})\n  }))\n  default  = {}\n  nullable = false\n}\n"
	push("1.0.0", strings.Replace(variables, "variable \"name\"", "variable \"label\"", 1))
	push("1.1.0", variables)
	g := s.serve("--data", s.data)
	browser := newChromium(t)
	at := root(g) + "m/" + vpc

	t.Run("module", func(t *testing.T) {
		b := browser.tab(t)
		b.open(at)
		b.wantText("3 inputs", "2 outputs", "Creates a network with subnets", "More", "Name of all resources, <b>not bold</b>", "optional(number, 1)", "Groups. One for each zone.",
			"The ID of the network", "Changes since 1.0.0", "added input name", "removed input label", "hashicorp/aws")
		if title := eval[string](b, `document.title`); strings.Contains(title, "injected") {
			t.Errorf("the README runs a script: %s", title)
		}
		if n := eval[int](b, `document.querySelectorAll('main img, main iframe, main script, main [onclick], main [style]').length`); n != 0 {
			t.Errorf("%d elements that load or run something", n)
		}
		b.audit("module-manual")
		b.do(chromedp.Click(chromedp.CSS(`.prose a[href^="?part="]`)), chromedp.WaitReady(chromedp.CSS(`.parts li a[aria-current]`)))
		b.wantText("Readme of modules/subnet", "Inputs of modules/subnet 1", "cidr")
		b.audit("module-part")
		b.open(at + "?since=9.9.9")
		b.wantText("There is no version 9.9.9 to compare with.")
	})
	t.Run("without scripts", func(t *testing.T) {
		b := browser.tab(t)
		b.withoutScripts()
		b.open(at)
		b.wantText("Creates a network with subnets", "optional(number, 1)", "Changes since 1.0.0")
	})
}
