// Copyright (c) 2026, fleet.cdi contributors
// GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Command judge asks the CDI reference library what it makes of specs: one JSON request a line, one JSON answer a line.
//
// It is built twice from this file: go.mod has the newest release of the library, v0.8.mod the last 0.8.x, which
// alone knows fields that were dropped later.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// file is one spec file. Data is base64 in JSON.
type file struct {
	Name string `json:"name"`
	Data []byte `json:"data"`
}

// request has Mode "read" with Name and Data, "time" (the same, Count times over), "inject": Specs and Devices into OCI,
// "registry": what a cache makes of Directories, or "annotations": which Devices a runtime takes from Annotations.
type request struct {
	Mode string `json:"mode"`
	file
	Count   int             `json:"count"`
	Specs   []file          `json:"specs"`
	Devices []string        `json:"devices"`
	OCI     json.RawMessage `json:"oci"`

	Directories []string          `json:"directories"`
	Annotations map[string]string `json:"annotations"`
}

// answer says whether the library accepts; if not, Error says why, and Crash that it panicked.
// Parsed is set as soon as the file is well-formed with known fields, whatever its content is worth.
type answer struct {
	Accept  bool            `json:"accept"`
	Crash   bool            `json:"crash,omitempty"`
	Error   string          `json:"error,omitempty"`
	Minimum string          `json:"minimum,omitempty"`
	Devices []string        `json:"devices,omitempty"`
	Parsed  *specs.Spec     `json:"parsed,omitempty"`
	OCI     json.RawMessage `json:"oci,omitempty"`
	Seconds float64         `json:"seconds,omitempty"`

	Providers map[string]string `json:"providers,omitempty"` // qualified name -> the file that it comes from
	Failed    []string          `json:"failed,omitempty"`    // files with errors
}

func main() {
	directory, err := os.MkdirTemp("", "judge")
	if err != nil {
		fail(err)
	}
	defer os.RemoveAll(directory)
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	for requests.More() {
		var asked request
		if err := requests.Decode(&asked); err != nil {
			fail(err)
		}
		if err := answers.Encode(reply(directory, &asked)); err != nil {
			fail(err)
		}
		if in.Buffered() == 0 {
			out.Flush()
		}
	}
	out.Flush()
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "judge:", err)
	os.Exit(1)
}

// reply answers one request; a panic of the library is an answer too.
func reply(directory string, asked *request) (said answer) {
	defer func() {
		if panicked := recover(); panicked != nil {
			said.Accept, said.Crash, said.Error = false, true, fmt.Sprint(panicked)
		}
	}()
	var err error
	switch asked.Mode {
	case "read":
		err = read(directory, asked, &said)
	case "time":
		err = measure(directory, asked, &said)
	case "inject":
		err = inject(directory, asked, &said)
	case "registry":
		err = registry(asked, &said)
	case "annotations":
		err = annotations(asked, &said)
	default:
		err = fmt.Errorf("unknown mode %q", asked.Mode)
	}
	said.Accept = err == nil
	if err != nil {
		said.Error = err.Error()
	}
	return said
}

func read(directory string, asked *request, said *answer) error {
	parsed, err := cdi.ParseSpec(asked.Data)
	if err != nil {
		return err
	}
	said.Parsed = parsed
	path := filepath.Join(directory, filepath.Base(asked.Name))
	if err := os.WriteFile(path, asked.Data, 0o600); err != nil {
		fail(err)
	}
	defer os.Remove(path)
	spec, err := cdi.ReadSpec(path, 0)
	if err != nil {
		return err
	}
	for _, device := range spec.Devices {
		said.Devices = append(said.Devices, device.Name)
	}
	said.Minimum, err = cdi.MinimumRequiredVersion(spec.Spec)
	return err
}

func inject(parent string, asked *request, said *answer) error {
	directory, err := os.MkdirTemp(parent, "specs")
	if err != nil {
		fail(err)
	}
	defer os.RemoveAll(directory)
	for _, spec := range asked.Specs {
		path := filepath.Join(directory, filepath.Clean("/"+spec.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			fail(err)
		}
		if err := os.WriteFile(path, spec.Data, 0o600); err != nil {
			fail(err)
		}
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(layers(directory, asked.Specs)...), cdi.WithAutoRefresh(false))
	if err != nil {
		return err
	}
	var target oci.Spec
	if err := json.Unmarshal(asked.OCI, &target); err != nil {
		return err
	}
	if _, err := cache.InjectDevices(&target, asked.Devices...); err != nil {
		return err
	}
	said.OCI, err = json.Marshal(&target)
	return err
}

func registry(asked *request, said *answer) error {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(asked.Directories...), cdi.WithAutoRefresh(false))
	if err != nil {
		return err
	}
	said.Providers = map[string]string{}
	for _, name := range cache.ListDevices() {
		said.Providers[name] = cache.GetDevice(name).GetSpec().GetPath()
	}
	for path := range cache.GetErrors() {
		said.Failed = append(said.Failed, path)
	}
	return nil
}

// annotations reads what a kubelet passed on, and refuses a key that the library itself would not make.
func annotations(asked *request, said *answer) error {
	keys, devices, err := cdi.ParseAnnotations(asked.Annotations)
	if err != nil {
		return err
	}
	for _, key := range keys {
		plugin, device, _ := strings.Cut(strings.TrimPrefix(key, cdi.AnnotationPrefix), "_")
		if made, err := cdi.AnnotationKey(plugin, device); err != nil || made != key {
			return fmt.Errorf("key %q: made anew it is %q (%v)", key, made, err)
		}
	}
	said.Devices = devices
	return nil
}

// layers are the directories of the files' names in the order of first use: later ones have priority, as in a cache.
func layers(directory string, files []file) []string {
	var all []string
	seen := map[string]bool{}
	for _, spec := range files {
		layer := filepath.Dir(filepath.Join(directory, filepath.Clean("/"+spec.Name)))
		if !seen[layer] {
			seen[layer] = true
			all = append(all, layer)
		}
	}
	return all
}

func measure(directory string, asked *request, said *answer) error {
	if asked.Count < 1 {
		return errors.New("count: expected 1 or more")
	}
	path := filepath.Join(directory, filepath.Base(asked.Name))
	if err := os.WriteFile(path, asked.Data, 0o600); err != nil {
		fail(err)
	}
	defer os.Remove(path)
	start := processorTime()
	for range asked.Count {
		if _, err := cdi.ReadSpec(path, 0); err != nil {
			return err
		}
	}
	said.Seconds = (processorTime() - start).Seconds() / float64(asked.Count)
	return nil
}

// processorTime is what all threads of this process took of the processors, those of the garbage collector included.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		fail(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
