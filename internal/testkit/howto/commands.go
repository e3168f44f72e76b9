package howto

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"io/fs"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Commands returns the programs that pages use and a machine might lack, for testscript.Main.
func Commands() map[string]func() {
	return map[string]func(){"curl": curl, "docker": docker}
}

// curl implements the options of curl that pages use.
func curl() {
	f := flag.NewFlagSet("curl", flag.ExitOnError)
	f.Bool("sS", false, "")
	fail := f.Bool("fsS", false, "")
	user, method, header, data := f.String("u", "", ""), f.String("X", "", ""), f.String("H", "", ""), f.String("d", "", "")
	file, ca := f.String("o", "", ""), f.String("cacert", "", "")
	retries, delay := f.Int("retry", 0, ""), f.Int("retry-delay", 0, "")
	f.Bool("retry-all-errors", false, "")
	f.Parse(os.Args[1:])
	url := f.Arg(0)
	f.Parse(f.Args()[1:])
	r, err := http.NewRequest(*method, url, strings.NewReader(*data))
	check(err)
	if name, value, ok := strings.Cut(*header, ": "); ok {
		r.Header.Set(name, value)
	}
	if name, value, ok := strings.Cut(*user, ":"); ok {
		r.SetBasicAuth(name, value)
	}
	if *ca != "" {
		check(os.Setenv("SSL_CERT_FILE", *ca)) // read at the first handshake
	}
	answer, err := http.DefaultClient.Do(r)
	for failed := func() bool { return err != nil || *fail && answer.StatusCode >= http.StatusBadRequest }; failed() && *retries > 0; *retries-- {
		if err == nil {
			answer.Body.Close()
		}
		time.Sleep(time.Duration(*delay) * time.Second)
		answer, err = http.DefaultClient.Do(r)
	}
	check(err)
	if *fail && answer.StatusCode >= http.StatusBadRequest {
		log.Printf("curl: %s", answer.Status)
		os.Exit(22)
	}
	out := os.Stdout
	if *file != "" {
		out, err = os.Create(*file)
		check(err)
	}
	_, err = io.Copy(out, answer.Body)
	check(err)
}

// docker implements docker login HOST -u USER. The password comes from standard input with --password-stdin, else
// from the file secret-USER in the home folder. No registry is asked whether the password is right.
func docker() {
	f := flag.NewFlagSet("docker login", flag.ExitOnError)
	user := f.String("u", "", "")
	f.StringVar(user, "username", "", "")
	stdin := f.Bool("password-stdin", false, "")
	if len(os.Args) < 2 || os.Args[1] != "login" {
		log.Fatalf("docker implements only docker login, not %q", os.Args[1:])
	}
	f.Parse(os.Args[2:])
	host := f.Arg(0)
	f.Parse(f.Args()[min(1, f.NArg()):])
	home := os.Getenv("HOME")
	var secret []byte
	var err error
	if *stdin {
		secret, err = io.ReadAll(os.Stdin)
	} else {
		secret, err = os.ReadFile(filepath.Join(home, "secret-"+*user))
	}
	check(err)
	folder := os.Getenv("DOCKER_CONFIG")
	if folder == "" {
		folder = filepath.Join(home, ".docker")
	}
	check(os.MkdirAll(folder, 0o700))
	check(addLogin(filepath.Join(folder, "config.json"), host, *user, strings.TrimSpace(string(secret))))
}

// addLogin adds a login to a login file, which need not exist.
func addLogin(file, host, user, password string) error {
	config := map[string]any{}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &config)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	auths, _ := config["auths"].(map[string]any)
	if auths == nil {
		auths = map[string]any{}
	}
	auths[host] = map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(user + ":" + password))}
	config["auths"] = auths
	if data, err = json.Marshal(config); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
