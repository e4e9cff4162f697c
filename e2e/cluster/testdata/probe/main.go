// Command probe is what pods run in the tests of the local cluster.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: probe wait | count | api <path>…")
		os.Exit(2)
	}
	switch os.Args[1] {
	case "wait":
		wait()
	case "count":
		count()
	case "api":
		for _, path := range os.Args[2:] {
			if err := api(path); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
}

// wait says that it is there and ends with SIGTERM.
func wait() {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	fmt.Println("probe is waiting")
	<-terminated
}

// count prints a line every ten milliseconds until nobody reads it any more.
func count() {
	for i := 0; ; i++ {
		if _, err := fmt.Println(i); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// api asks the API server as a pod does, with the token and the authority that are mounted, and prints the status code.
func api(path string) error {
	const account = "/var/run/secrets/kubernetes.io/serviceaccount"
	token, err := os.ReadFile(filepath.Join(account, "token"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	url := "https://" + os.Getenv("KUBERNETES_SERVICE_HOST") + ":" + os.Getenv("KUBERNETES_SERVICE_PORT") + path
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	fmt.Println(response.StatusCode, path)
	return nil
}
