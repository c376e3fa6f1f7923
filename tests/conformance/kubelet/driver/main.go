// Copyright (c) 2026, fleet.cdi contributors
// GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// The kubelet's own device manager, topology manager and plugin manager, with NUMA nodes and pods as they are asked for.
//
// Reads one request per line, answers each with one line: see request and answer. The managers' directories are fixed,
// so run it where /var/lib/kubelet is its own. What the managers log goes to stderr.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"

	cadvisor "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
)

const registry = "/var/lib/kubelet/plugins_registry"

// request is one line of input.
type request struct {
	Do         string                      `json:"do"`         // start, stop, admit, delete, state
	Policy     string                      `json:"policy"`     // start: of the topology manager
	Scope      string                      `json:"scope"`      // start: container or pod
	Nodes      int                         `json:"nodes"`      // start: NUMA nodes 0 to Nodes-1
	Pod        string                      `json:"pod"`        // admit, delete: its name, which is its uid
	Containers map[string]map[string]int64 `json:"containers"` // admit: container -> resource -> how many, by name's order
}

// answer is one line of output.
type answer struct {
	Error       string                         `json:"error,omitempty"` // the request makes no sense
	Admitted    bool                           `json:"admitted"`        // admit
	Reason      string                         `json:"reason,omitempty"`
	Message     string                         `json:"message,omitempty"`
	Devices     map[string]map[string][]string `json:"devices,omitempty"`     // admit: container -> resource -> IDs
	CDI         map[string][]string            `json:"cdi,omitempty"`         // admit: container -> names
	Capacity    map[string]int64               `json:"capacity,omitempty"`    // state
	Allocatable map[string][]string            `json:"allocatable,omitempty"` // state: resource -> IDs
	Unhealthy   map[string][]string            `json:"unhealthy,omitempty"`   // state: pod -> its unhealthy IDs
	Updates     int                            `json:"updates"`               // state: health changes of devices in use
}

// kubelet is what of one runs here.
type kubelet struct {
	lock     sync.Mutex
	pods     map[string]*v1.Pod
	devices  *devicemanager.ManagerImpl
	topology topologymanager.Manager
	stop     chan struct{}
	updates  int
}

func (k *kubelet) active() []*v1.Pod {
	k.lock.Lock()
	defer k.lock.Unlock()
	pods := []*v1.Pod{}
	for _, pod := range k.pods {
		pods = append(pods, pod)
	}
	return pods
}

// set the pod of a name; nil: there is none any more.
func (k *kubelet) set(name string, pod *v1.Pod) {
	k.lock.Lock()
	defer k.lock.Unlock()
	if pod == nil {
		delete(k.pods, name)
	} else {
		k.pods[name] = pod
	}
}

func (k *kubelet) start(asked request) error {
	nodes := []cadvisor.Node{}
	for id := 0; id < asked.Nodes; id++ {
		nodes = append(nodes, cadvisor.Node{Id: id})
	}
	var err error
	if k.topology, err = topologymanager.NewManager(nodes, asked.Policy, asked.Scope, nil); err != nil {
		return err
	}
	if k.devices, err = devicemanager.NewManagerImpl(nodes, k.topology); err != nil {
		return err
	}
	k.topology.AddHintProvider(klog.Background(), k.devices)
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return true })
	if err = k.devices.Start(klog.Background(), k.active, ready, containermap.NewContainerMap(), sets.New[string]()); err != nil {
		return err
	}
	k.stop = make(chan struct{})
	go k.count(k.devices, k.stop)
	plugins := pluginmanager.NewPluginManager(registry, record.NewFakeRecorder(0))
	plugins.AddHandler("DevicePlugin", k.devices.GetWatcherHandler())
	go plugins.Run(context.Background(), ready, k.stop)
	return nil
}

// count the health changes of devices in use until the end.
func (k *kubelet) count(devices *devicemanager.ManagerImpl, stop <-chan struct{}) {
	for {
		select {
		case <-devices.Updates():
			k.lock.Lock()
			k.updates++
			k.lock.Unlock()
		case <-stop:
			return
		}
	}
}

func (k *kubelet) admit(asked request) answer {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: asked.Pod, Namespace: "default", UID: types.UID(asked.Pod)}}
	for name, wanted := range asked.Containers {
		limits := v1.ResourceList{}
		for resourceName, number := range wanted {
			limits[v1.ResourceName(resourceName)] = *resource.NewQuantity(number, resource.DecimalSI)
		}
		needs := v1.ResourceRequirements{Limits: limits, Requests: limits}
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name, Resources: needs})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{Name: name})
	}
	sort.Slice(pod.Spec.Containers, func(i, j int) bool { return pod.Spec.Containers[i].Name < pod.Spec.Containers[j].Name })
	k.set(asked.Pod, pod) // before it is admitted, as in a kubelet: what is not active loses what it got
	k.devices.UpdateAllocatedDevices()
	result := k.topology.Admit(&lifecycle.PodAdmitAttributes{Pod: pod})
	said := answer{Admitted: result.Admit, Reason: result.Reason, Message: result.Message}
	if !result.Admit {
		k.set(asked.Pod, nil)
		return said
	}
	said.Devices, said.CDI = map[string]map[string][]string{}, map[string][]string{}
	for _, container := range pod.Spec.Containers {
		held := map[string][]string{}
		for name, instances := range k.devices.GetDevices(asked.Pod, container.Name) {
			for id := range instances {
				held[name] = append(held[name], id)
			}
			sort.Strings(held[name])
		}
		said.Devices[container.Name] = held
		options, err := k.devices.GetDeviceRunContainerOptions(context.Background(), pod, &container)
		if err != nil {
			return answer{Reason: "GetDeviceRunContainerOptions", Message: err.Error()}
		}
		if options == nil {
			continue // it asked for no device
		}
		for _, device := range options.CDIDevices {
			said.CDI[container.Name] = append(said.CDI[container.Name], device.Name)
		}
		sort.Strings(said.CDI[container.Name])
	}
	return said
}

func (k *kubelet) state() answer {
	said := answer{Capacity: map[string]int64{}, Allocatable: map[string][]string{}, Unhealthy: map[string][]string{}}
	capacity, _, _ := k.devices.GetCapacity()
	for name, quantity := range capacity {
		said.Capacity[string(name)] = quantity.Value()
	}
	for name, instances := range k.devices.GetAllocatableDevices() {
		for id := range instances {
			said.Allocatable[name] = append(said.Allocatable[name], id)
		}
		sort.Strings(said.Allocatable[name])
	}
	for _, pod := range k.active() {
		status := pod.Status.DeepCopy()
		k.devices.UpdateAllocatedResourcesStatus(pod, status)
		for _, container := range status.ContainerStatuses {
			for _, one := range container.AllocatedResourcesStatus {
				for _, device := range one.Resources {
					if device.Health != v1.ResourceHealthStatusHealthy {
						said.Unhealthy[pod.Name] = append(said.Unhealthy[pod.Name], string(device.ResourceID))
					}
				}
			}
		}
	}
	k.lock.Lock()
	said.Updates = k.updates
	k.lock.Unlock()
	return said
}

func (k *kubelet) answer(asked request) answer {
	if (k.devices == nil) != (asked.Do == "start") {
		return answer{Error: fmt.Sprintf("%s: start comes first, and once until stop", asked.Do)}
	}
	switch asked.Do {
	case "start":
		if err := k.start(asked); err != nil {
			return answer{Error: err.Error()}
		}
	case "stop":
		close(k.stop)
		if err := k.devices.Stop(klog.Background()); err != nil {
			return answer{Error: err.Error()}
		}
		k.devices, k.topology = nil, nil
	case "admit":
		return k.admit(asked)
	case "delete":
		k.set(asked.Pod, nil)
		k.devices.UpdateAllocatedDevices()
	case "state":
		return k.state()
	default:
		return answer{Error: fmt.Sprintf("%q is none of start, stop, admit, delete, state", asked.Do)}
	}
	return answer{}
}

func main() {
	managers := &kubelet{pods: map[string]*v1.Pod{}}
	input := bufio.NewReader(os.Stdin)
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked request
		said := answer{}
		if err := json.Unmarshal(line, &asked); err != nil {
			said.Error = err.Error()
		} else {
			said = managers.answer(asked)
		}
		if err := output.Encode(said); err != nil {
			return
		}
	}
}
