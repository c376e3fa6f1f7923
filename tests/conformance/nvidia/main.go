// Copyright (c) 2026, fleet.cdi contributors
// GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// The vendor's own generator on a rendered tree: nvcdi of the NVIDIA Container Toolkit, the library behind
// `nvidia-ctk cdi generate`, which gets the tree as its root directory and go-nvml's mock as its NVML.
//
// Request on stdin, answer on stdout, both JSON:
//
//	{"root": DIR, "driverroot": "/", "devroot": "/", "devices": ["all"], "driver": "550.54.15", "hook": "/usr/bin/nvidia-cdi-hook", "modes": ["nvml", ...], "names": ["index", ...],
//	 "gpus": [{"uuid", "pci", "minor", "migmode", "mig": [{"gi", "ci", "uuid", "profile"}]}]}
//	{"nvml": {"spec": SPEC, "text": the file that it writes} or {"error": TEXT}, ...}
package main

import (
	"encoding/json"
	"io"
	"log"
	"os"
	"strings"
	"syscall"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform"
)

type mig struct {
	Gi, Ci  int
	UUID    string
	Profile int // index of a GPU instance profile, GPU_INSTANCE_PROFILE_* of nvml.h
}

type gpu struct {
	UUID, Pci string
	Minor     int
	Mig       []mig
	MigMode   bool
}

type request struct {
	Root, DriverRoot, DevRoot, Driver, Hook string
	Modes, Names, Devices                   []string
	Gpus                           []gpu
}

type answer struct {
	Spec  any    `json:"spec,omitempty"`
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
}

// quiet is the library's logger; what it can't find is what the tests are about.
type quiet struct{}

func (quiet) Debugf(string, ...any)   {}
func (quiet) Errorf(string, ...any)   {}
func (quiet) Info(...any)             {}
func (quiet) Infof(string, ...any)    {}
func (quiet) Trace(...any)            {}
func (quiet) Tracef(string, ...any)   {}
func (quiet) Warning(...any)          {}
func (quiet) Warningf(string, ...any) {}
func (quiet) Warnf(string, ...any)    {}

func main() {
	var asked request
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		log.Fatal(err)
	}
	// Some of what the library reads (/sys/bus/pci, /proc/driver) has no root option.
	if err := syscall.Chroot(asked.Root); err != nil {
		log.Fatal(err)
	}
	if err := os.Chdir("/"); err != nil {
		log.Fatal(err)
	}
	log.SetOutput(io.Discard)
	answers := map[string]answer{}
	for _, mode := range asked.Modes {
		found, err := generate(asked, mode)
		if err != nil {
			found = answer{Error: err.Error()}
		}
		answers[mode] = found
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		os.Exit(1)
	}
}

func generate(asked request, mode string) (answer, error) {
	namers := []nvcdi.DeviceNamer{}
	for _, strategy := range asked.Names {
		namer, err := nvcdi.NewDeviceNamer(strategy)
		if err != nil {
			return answer{}, err
		}
		namers = append(namers, namer)
	}
	library, err := nvcdi.New(
		nvcdi.WithLogger(quiet{}),
		nvcdi.WithDriverRoot(asked.DriverRoot),
		nvcdi.WithDevRoot(asked.DevRoot),
		nvcdi.WithNVIDIACDIHookPath(asked.Hook),
		nvcdi.WithDeviceNamers(namers...),
		nvcdi.WithMode(mode),
		nvcdi.WithNvmlLib(server(asked)),
		nvcdi.WithMergedDeviceOptions(transform.WithName("all"), transform.WithSkipIfExists(true)),
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils), // a library of the driver, which is not here
	)
	if err != nil {
		return answer{}, err
	}
	ids := []string{}
	switch mode {
	case "mig-caps":
		ids = []string{"config", "monitor"}
	case "nvml":
		ids = asked.Devices
	}
	spec, err := library.GetSpec(ids...)
	if err != nil {
		return answer{}, err
	}
	text := strings.Builder{}
	if _, err := spec.WriteTo(&text); err != nil {
		return answer{}, err
	}
	return answer{Spec: spec.Raw(), Text: text.String()}, nil
}

// server is go-nvml's DGX A100, with these GPUs.
func server(asked request) nvml.Interface {
	s := dgxa100.New()
	s.DriverVersion = asked.Driver
	s.Devices = nil
	for i, g := range asked.Gpus {
		s.Devices = append(s.Devices, device(i, g))
	}
	inner := s.DeviceGetHandleByUUIDFunc
	s.DeviceGetHandleByUUIDFunc = func(uuid string) (nvml.Device, nvml.Return) {
		for _, parent := range s.Devices {
			count, _ := parent.GetMaxMigDeviceCount()
			for j := range count {
				m, _ := parent.GetMigDeviceHandleByIndex(j)
				if found, _ := m.GetUUID(); found == uuid {
					return m, nvml.SUCCESS
				}
			}
		}
		return inner(uuid)
	}
	return s
}

func device(index int, g gpu) nvml.Device {
	d := dgxa100.NewDevice(index)
	d.UUID, d.PciBusID, d.Minor = g.UUID, g.Pci, g.Minor
	if g.MigMode {
		d.MigMode = nvml.DEVICE_MIG_ENABLE
	}
	d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
		p := nvml.PciInfo{}
		for i, c := range "0000" + g.Pci { // as NVML writes it: 00000000:07:00.0
			p.BusId[i] = int8(c)
		}
		return p, nvml.SUCCESS
	}
	d.IsMigDeviceHandleFunc = func() (bool, nvml.Return) { return false, nvml.SUCCESS }
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return len(g.Mig), nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(j int) (nvml.Device, nvml.Return) {
		return partition(d, j, g.Mig[j]), nvml.SUCCESS
	}
	d.GetGpuInstanceByIdFunc = func(id int) (nvml.GpuInstance, nvml.Return) {
		for _, m := range g.Mig {
			if m.Gi == id {
				return instance(d, m), nvml.SUCCESS
			}
		}
		return nil, nvml.ERROR_NOT_FOUND
	}
	profiles := d.GetGpuInstanceProfileInfoFunc
	d.GetGpuInstanceProfileInfoFunc = func(id int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
		if id == nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX { // no A100 has it; later GPUs do
			return nvml.GpuInstanceProfileInfo{Id: uint32(1000 + id), SliceCount: 1}, nvml.SUCCESS
		}
		return profiles(id)
	}
	return d
}

func partition(parent nvml.Device, index int, m mig) nvml.Device {
	return &mock.Device{
		GetUUIDFunc:                            func() (string, nvml.Return) { return m.UUID, nvml.SUCCESS },
		GetIndexFunc:                           func() (int, nvml.Return) { return index, nvml.SUCCESS },
		IsMigDeviceHandleFunc:                  func() (bool, nvml.Return) { return true, nvml.SUCCESS },
		GetGpuInstanceIdFunc:                   func() (int, nvml.Return) { return m.Gi, nvml.SUCCESS },
		GetComputeInstanceIdFunc:               func() (int, nvml.Return) { return m.Ci, nvml.SUCCESS },
		GetDeviceHandleFromMigDeviceHandleFunc: func() (nvml.Device, nvml.Return) { return parent, nvml.SUCCESS },
		GetAttributesFunc: func() (nvml.DeviceAttributes, nvml.Return) {
			return nvml.DeviceAttributes{MemorySizeMB: 4864}, nvml.SUCCESS
		},
	}
}

func instance(parent nvml.Device, m mig) nvml.GpuInstance {
	profile, _ := parent.GetGpuInstanceProfileInfo(m.Profile)
	gi := dgxa100.NewGpuInstance(nvml.GpuInstanceInfo{Device: parent, Id: uint32(m.Gi), ProfileId: profile.Id})
	gi.GetComputeInstanceProfileInfoFunc = func(id, engine int) (nvml.ComputeInstanceProfileInfo, nvml.Return) {
		if id != 0 || engine != 0 {
			return nvml.ComputeInstanceProfileInfo{}, nvml.ERROR_NOT_SUPPORTED
		}
		return nvml.ComputeInstanceProfileInfo{Id: 0, SliceCount: 1}, nvml.SUCCESS
	}
	gi.GetComputeInstanceByIdFunc = func(id int) (nvml.ComputeInstance, nvml.Return) {
		return dgxa100.NewComputeInstance(nvml.ComputeInstanceInfo{Device: parent, GpuInstance: gi, Id: uint32(id)}), nvml.SUCCESS
	}
	return gi
}
