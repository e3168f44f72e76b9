package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/trust"
)

const fingerprintExamples = `  # the key of a publisher, to compare with what the publisher says elsewhere
  ocibridge fingerprint acme-release.asc

  # your own key, for those who are to pin it
  gpg --armor --export releases@acme.example | ocibridge fingerprint -`

func newFingerprintCommand() *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "fingerprint FILE...",
		Short: "Print the fingerprints of public keys, to be pinned",
		Long: `fingerprint prints the full fingerprint of every primary key in files of public keys
in ASCII armour; - stands for standard input. A trust block pins such a key by its
fingerprint (keys), or by its file (key_files).

A user ID proves nothing: anybody can write any name into a key. Learn the
fingerprint from its publisher by another way.`,
		Example: fingerprintExamples,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(hint.New("no file is named", "name files that gpg --armor --export KEYID was written to, or - for standard input"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := readKeyFiles(cmd.Context(), args, cmd.InOrStdin())
			if err != nil {
				return err
			}
			return printKeys(cmd.OutOrStdout(), keys, output.json())
		},
		ValidArgsFunction: cobra.FixedCompletions([]string{"asc", "gpg", "pem", "txt"}, cobra.ShellCompDirectiveFilterFileExt),
	}
	output.register(cmd)
	return cmd
}

// keyInFile is a key and the name of the file that contains it.
type keyInFile struct {
	File string `json:"file"`
	trust.Key
}

func readKeyFiles(ctx context.Context, files []string, stdin io.Reader) ([]keyInFile, error) {
	var out []keyInFile
	for _, name := range files {
		text, err := readKeyFile(ctx, name, stdin)
		if err != nil {
			return nil, hint.Wrap(fmt.Errorf("key file: %w", err), "name a file that gpg --armor --export KEYID was written to")
		}
		keys, err := trust.ReadKeys(ctx, string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, k := range keys {
			out = append(out, keyInFile{name, k})
		}
	}
	return out, nil
}

func readKeyFile(ctx context.Context, name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		text, err := within(ctx, func() (string, error) {
			b, err := io.ReadAll(io.LimitReader(stdin, files.MaxSize))
			return string(b), err
		})
		return []byte(text), err
	}
	return files.ReadGiven(ctx, name)
}

func printKeys(w io.Writer, keys []keyInFile, asJSON bool) error {
	if asJSON {
		return printJSON(w, map[string][]keyInFile{"keys": keys})
	}
	var out strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&out, "%s  %s%s\n", k.Fingerprint, hint.OneLine(strings.Join(k.UserIDs, ", ")), keyState(k.Key))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// keyState returns a note if a key is revoked, has expired or will expire, or else "".
func keyState(k trust.Key) string {
	switch {
	case k.Revoked:
		return " (revoked)"
	case k.Expires.IsZero():
		return ""
	case k.Expires.Before(time.Now()):
		return " (expired on " + k.Expires.Format(time.DateOnly) + ")"
	}
	return " (expires on " + k.Expires.Format(time.DateOnly) + ")"
}
