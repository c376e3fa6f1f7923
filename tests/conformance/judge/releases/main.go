// Copyright (c) 2026, fleet.cdi contributors
// GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Command releases asks one release of the CDI reference library what it takes for specs: one JSON request a line, one
// JSON answer a line. It uses only what every release from 0.5.0 on has, under the library's newest import path.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// request is a file, Name and Data (base64 in JSON), or with Directories the registry over them.
type request struct {
	Name        string   `json:"name"`
	Data        []byte   `json:"data"`
	Directories []string `json:"directories"`
}

// answer has the Kind and the Devices of the file; if the library refuses it, why, and Crash if it panicked. For
// directories it has the qualified names that resolve, each with the file that it comes from.
type answer struct {
	Accept    bool              `json:"accept"`
	Crash     bool              `json:"crash,omitempty"`
	Error     string            `json:"error,omitempty"`
	Kind      string            `json:"kind,omitempty"`
	Devices   []string          `json:"devices,omitempty"`
	Providers map[string]string `json:"providers,omitempty"`
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
			said = answer{Crash: true, Error: fmt.Sprint(panicked)}
		}
	}()
	var err error
	if asked.Directories != nil {
		err = registry(asked.Directories, &said)
	} else {
		err = read(directory, asked, &said)
	}
	said.Accept = err == nil
	if err != nil {
		said.Error = err.Error()
	}
	return said
}

func read(directory string, asked *request, said *answer) error {
	path := filepath.Join(directory, filepath.Base(asked.Name))
	if err := os.WriteFile(path, asked.Data, 0o600); err != nil {
		fail(err)
	}
	defer os.Remove(path)
	spec, err := cdi.ReadSpec(path, 0)
	if err != nil {
		return err
	}
	said.Kind = spec.Kind
	for _, device := range spec.Devices {
		said.Devices = append(said.Devices, device.Name)
	}
	sort.Strings(said.Devices)
	return nil
}

func registry(directories []string, said *answer) error {
	// Before 0.5.0 the error is that of a file; runtimes go on with the others.
	cache, err := cdi.NewCache(cdi.WithSpecDirs(directories...), cdi.WithAutoRefresh(false))
	if cache == nil {
		return err
	}
	said.Providers = map[string]string{}
	for _, name := range cache.ListDevices() {
		said.Providers[name] = cache.GetDevice(name).GetSpec().GetPath()
	}
	return nil
}
