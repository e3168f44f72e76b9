package howto

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"io/fs"
	"log"
	"net"
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

// curl implements the options of curl that pages use. As curl does, it reads ~/.curlrc, in which tests name servers.
func curl() {
	f := flag.NewFlagSet("curl", flag.ExitOnError)
	f.Bool("sS", false, "")
	fail := f.Bool("fsS", false, "")
	user, method, header, data := f.String("u", "", ""), f.String("X", "", ""), f.String("H", "", ""), f.String("d", "", "")
	file, ca := f.String("o", "", ""), f.String("cacert", "", "")
	retries, delay := f.Int("retry", 0, ""), f.Int("retry-delay", 0, "")
	f.Bool("retry-all-errors", false, "")
	configFile := f.String("K", "", "")
	f.Parse(os.Args[1:])
	url := f.Arg(0)
	f.Parse(f.Args()[1:])
	r, err := http.NewRequest(*method, url, strings.NewReader(*data))
	check(err)
	headers, servers := curlConfig(*configFile)
	for _, header := range append(headers, *header) {
		if name, value, ok := strings.Cut(header, ": "); ok {
			r.Header.Set(name, value)
		}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, network, host string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, cmp.Or(servers[host], host))
	}
	client := &http.Client{Transport: transport}
	if name, value, ok := strings.Cut(*user, ":"); ok {
		r.SetBasicAuth(name, value)
	}
	if *ca != "" {
		check(os.Setenv("SSL_CERT_FILE", *ca)) // read at the first handshake
	}
	answer, err := client.Do(r)
	for failed := func() bool { return err != nil || *fail && answer.StatusCode >= http.StatusBadRequest }; failed() && *retries > 0; *retries-- {
		if err == nil {
			answer.Body.Close()
		}
		time.Sleep(time.Duration(*delay) * time.Second)
		answer, err = client.Do(r)
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

// curlConfig returns the headers of a file of options, or of standard input if its name is "-". From ~/.curlrc it returns
// the HOST:PORT to connect to for another one. Both files may be missing.
func curlConfig(file string) (headers []string, servers map[string]string) {
	var text []byte
	if file == "-" {
		text, _ = io.ReadAll(os.Stdin)
	} else if file != "" {
		text, _ = os.ReadFile(file)
	}
	rc, _ := os.ReadFile(filepath.Join(os.Getenv("HOME"), ".curlrc"))
	servers = map[string]string{}
	for line := range strings.Lines(string(text) + "\n" + string(rc)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
		switch value = strings.Trim(value, `"`); name {
		case "header":
			headers = append(headers, value)
		case "connect-to": // HOST1:PORT1:HOST2:PORT2
			if parts := strings.Split(value, ":"); len(parts) == 4 {
				servers[parts[0]+":"+parts[1]] = parts[2] + ":" + parts[3]
			}
		}
	}
	return headers, servers
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
