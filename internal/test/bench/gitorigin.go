package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/ocibridge/ocibridge/internal/test/testkit/gitserver"
)

// gitCommand is the argument with which this program runs as a Git server and as the module registry in front of it.
const gitCommand = "git"

// The public modules that sync brings: each is a Git repository with a history, like those of real modules.
const (
	publicHost     = "modules.acme.example"
	publicModules  = 30
	publicTags     = 60 // the versions of each module
	commitsPerTag  = 5
	publicVersions = 5 // the newest versions, which sync stores
)

// publicVersion returns a version of a module, 0 is the oldest.
func publicVersion(i int) string { return fmt.Sprintf("%d.%d.0", 1+i/20, i%20) }

// serveGit serves the repositories in a folder, and a module registry whose locations lead to them. It prints its address, and
// exits when its standard input ends.
func serveGit(args []string) error {
	root, certFile, keyFile := args[0], args[1], args[2]
	git, err := gitserver.Open(root)
	if err != nil {
		return err
	}
	var list strings.Builder
	for i := range publicTags {
		fmt.Fprintf(&list, `,{"version":%q}`, publicVersion(i))
	}
	versions := `{"modules":[{"versions":[` + list.String()[1:] + `]}]}`
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/modules/{namespace}/{name}/{system}/versions", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, versions)
	})
	mux.HandleFunc("/v1/modules/{namespace}/{name}/{system}/{version}/download", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Terraform-Get", fmt.Sprintf("git::https://%s/git/%s?ref=v%s", r.Host, r.PathValue("name"), r.PathValue("version")))
		w.WriteHeader(http.StatusNoContent)
	})
	mux.Handle("/git/", http.StripPrefix("/git", git))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.ServeTLS(l, mux, certFile, keyFile)
}

// writeRepositories creates the repositories in a folder.
func writeRepositories(root string) error {
	git, err := gitserver.Open(root)
	if err != nil {
		return err
	}
	for i := range publicModules {
		name := benchModule(i)
		if err := git.Init(name); err != nil {
			return err
		}
		if err := git.Import(name, strings.NewReader(history(uint64(i)))); err != nil {
			return err
		}
		if _, err := git.Run(git.Dir(name), nil, nil, "repack", "-adfq", "--write-bitmap-index"); err != nil {
			return err
		}
		if _, err := git.Run(git.Dir(name), nil, nil, "pack-refs", "--all"); err != nil {
			return err
		}
	}
	return nil
}

// history returns the history of one module in the format of git fast-import: 20 to 60 files of 1 to 40 KiB, in which each
// commit changes a few blocks.
func history(seed uint64) string {
	random := rand.New(rand.NewPCG(seed, 1))
	paths := []string{"main.tf", "variables.tf", "outputs.tf", "versions.tf", "README.md", "CHANGELOG.md", "LICENSE", ".gitignore", ".editorconfig", ".pre-commit-config.yaml"}
	for i := range 1 + random.IntN(5) {
		for _, file := range []string{"main.tf", "variables.tf", "outputs.tf", "versions.tf", "README.md"} {
			paths = append(paths, fmt.Sprintf("examples/case-%d/%s", i, file))
			if i%2 == 0 {
				paths = append(paths, fmt.Sprintf("modules/part-%d/%s", i, file))
			}
		}
	}
	files := make([][]string, len(paths)) // blocks
	for i, path := range paths {
		most := 6 // blocks
		if !strings.Contains(path, "/") && i < 6 {
			most = 120
		}
		for range 1 + random.IntN(most) {
			files[i] = append(files[i], block(random))
		}
	}
	var out strings.Builder
	write := func(i int) {
		text := strings.Join(files[i], "\n")
		fmt.Fprintf(&out, "M 100644 inline %s\ndata %d\n%s\n", paths[i], len(text), text)
	}
	for commit := range publicTags * commitsPerTag {
		message := fmt.Sprintf("feat: Change number %d", commit)
		fmt.Fprintf(&out, "commit refs/heads/main\ncommitter a <a@example.com> %d +0000\ndata %d\n%s\n", 1500000000+3600*commit, len(message), message)
		if commit == 0 {
			for i := range paths {
				write(i)
			}
		}
		for range 1 + random.IntN(3) {
			i := random.IntN(len(paths))
			files[i][random.IntN(len(files[i]))] = block(random)
			write(i)
		}
		if (commit+1)%commitsPerTag == 0 {
			fmt.Fprintf(&out, "reset refs/tags/v%s\nfrom refs/heads/main\n\n", publicVersion(commit/commitsPerTag))
		}
	}
	return out.String()
}

var words = strings.Fields("the subnet group of a private network with tags for each zone that is enabled when default route table security rule ingress egress address range policy bucket cluster node instance type map list object string number")

// block returns a block of a module with random words.
func block(random *rand.Rand) string {
	text := func(n int) string {
		var out []string
		for range n {
			out = append(out, words[random.IntN(len(words))])
		}
		return strings.Join(out, " ")
	}
	name := strings.ReplaceAll(text(3), " ", "_")
	return []string{
		fmt.Sprintf("variable %q {\n  description = %q\n  type        = any\n  default     = null\n}\n", name, text(12)),
		fmt.Sprintf("output %q {\n  description = %q\n  value       = try(local.%s[0].id, %q)\n}\n", name, text(8), name, text(1)),
		fmt.Sprintf("locals {\n  %s = var.%s ? %d : %d # %s\n}\n", name, strings.ReplaceAll(text(2), " ", "_"), random.IntN(1000), random.IntN(1000), text(10)),
	}[random.IntN(3)]
}
