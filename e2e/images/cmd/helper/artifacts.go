package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// uploadTries is how often GitLab's helper posts artifacts before it gives up.
const uploadTries = 3

// job is which job on which coordinator, with the credential that GitLab takes for it.
type job struct {
	url, token, id string
}

func jobFlags(flags *flag.FlagSet) *job {
	j := &job{}
	flags.StringVar(&j.url, "url", "", "the coordinator, without /api/v4")
	flags.StringVar(&j.token, "token", "", "the job's token")
	flags.StringVar(&j.id, "id", "", "the job's id")
	return j
}

// artifacts is the address of the job's artifacts.
func (j *job) artifacts(query url.Values) (string, error) {
	if j.url == "" || j.token == "" || j.id == "" {
		return "", errors.New("--url, --token and --id are needed")
	}
	return strings.TrimSuffix(j.url, "/") + "/api/v4/jobs/" + url.PathEscape(j.id) + "/artifacts?" + query.Encode(), nil
}

func uploadArtifacts(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("artifacts-uploader", flag.ContinueOnError)
	j := jobFlags(flags)
	what := selectionFlags(flags)
	timeout := flags.Duration("timeout", time.Hour, "how long the upload may take")
	_ = flags.Duration("response-header-timeout", 10*time.Minute, "how long the answer may take")
	name := flags.String("name", "artifacts", "the archive's name")
	format := flags.String("artifact-format", "zip", "the archive's format")
	kind := flags.String("artifact-type", "archive", "the artifact's type")
	expire := flags.String("expire-in", "", "how long GitLab keeps it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *format != "zip" {
		return fmt.Errorf("artifacts-uploader: format %s is not part of this stand-in", *format)
	}
	query := url.Values{"artifact_format": {*format}, "artifact_type": {*kind}}
	if *expire != "" {
		query.Set("expire_in", *expire)
	}
	address, err := j.artifacts(query)
	if err != nil {
		return fmt.Errorf("artifacts-uploader: %w", err)
	}
	names, err := what.files()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		fmt.Fprintln(os.Stderr, "ERROR: No files to upload")
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	for try := 1; ; try++ {
		if err = post(ctx, address, j.token, *name+".zip", names); err == nil {
			fmt.Printf("Uploading artifacts as %q to coordinator... 201 Created id=%s\n", *kind, j.id)
			return nil
		}
		fmt.Fprintf(os.Stderr, "WARNING: Uploading artifacts as %q to coordinator... %v id=%s\n", *kind, err, j.id)
		if try == uploadTries || ctx.Err() != nil {
			return fmt.Errorf("artifacts of job %s were not uploaded: %w", j.id, err)
		}
	}
}

// post sends one zip archive as the multipart field "file", packed as it goes.
func post(ctx context.Context, address, token, name string, names []string) error {
	reader, writer := io.Pipe()
	form := multipart.NewWriter(writer)
	go func() {
		part, err := form.CreateFormFile("file", name)
		if err == nil {
			err = pack(part, names)
		}
		writer.CloseWithError(errors.Join(err, form.Close()))
	}()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, reader)
	if err != nil {
		return errors.Join(err, reader.Close())
	}
	request.Header.Set("Content-Type", form.FormDataContentType())
	request.Header.Set("JOB-TOKEN", token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusCreated {
		return errors.New(response.Status)
	}
	return nil
}

func downloadArtifacts(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("artifacts-downloader", flag.ContinueOnError)
	j := jobFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	address, err := j.artifacts(url.Values{})
	if err != nil {
		return fmt.Errorf("artifacts-downloader: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	request.Header.Set("JOB-TOKEN", j.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("downloading artifacts of job %s from coordinator: %s", j.id, response.Status)
	}
	// Beside the working directory's files, since not every container has a folder for temporary ones.
	archive, err := os.CreateTemp(".", ".artifacts-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(archive.Name()) }()
	_, err = io.Copy(archive, response.Body)
	if err := errors.Join(err, archive.Close()); err != nil {
		return err
	}
	return unpack(archive.Name())
}
