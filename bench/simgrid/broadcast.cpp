// Broadcasts in SimGrid: the independent check of Tidecast's network model.
//
//   broadcast ALGORITHM SIZE SEGMENT [LV08] < topology
//
// Reads a topology (the file format of lab/README.md) and prints, as JSON, the seconds after which each receiver
// had everything. Every end of every link is half of a SimGrid split-duplex link; flows share them max-min: the
// model is CM02 with every correction factor of TCP switched off (`exact`), or LV08, SimGrid's default, whose factors
// were fitted to TCP, with 30 microseconds from host to host. A message is one SimGrid communication. Nothing here is
// shared with crates/sim: the schedules are written a second time, as the actors of the nodes would run them. A
// link's delay is waited after the communication, not in it: SimGrid pays latency once a communication, and a TCP
// stream does not stop between two messages.
#include <cstdio>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <set>
#include <simgrid/s4u.hpp>
#include <sstream>
#include <stdexcept>

namespace sg4 = simgrid::s4u;

namespace {

const std::vector<std::string> precise = {"surf/precision:1e-9", "maxmin/precision:1e-9", "network/crosstraffic:0"};
const std::vector<std::string> exact   = {"network/model:CM02",       "network/TCP-gamma:1e15",
                                          "network/weight-S:0",       "network/latency-factor:1",
                                          "network/bandwidth-factor:1", "network/optim:Full"};

double unit(const std::string& text, const std::map<std::string, double>& units)
{
  size_t end   = 0;
  double value = std::stod(text, &end);
  return value * units.at(text.substr(end));
}

// Bytes per second of `20mbit`.
double rate_of(const std::string& text)
{
  return unit(text, {{"bit", 1.0 / 8}, {"kbit", 1e3 / 8}, {"mbit", 1e6 / 8}, {"gbit", 1e9 / 8}});
}

using Route = std::vector<sg4::LinkInRoute>;

// Nodes and switches of the text as a SimGrid platform; the hosts are node 0 onward.
class Platform {
  struct Edge {
    size_t to;
    sg4::LinkInRoute link;
    double delay;
  };
  std::map<std::string, size_t> switches;
  std::vector<std::vector<Edge>> edges; // of each switch
  std::vector<size_t> at;               // switch of each node
  std::vector<const sg4::Link*> wires;  // of each node: up is out, down is in
  sg4::NetZone* zone = sg4::create_full_zone("lab");
  std::vector<std::vector<double>> delays; // between switches

public:
  std::vector<sg4::Host*> hosts;

  // With seconds that a message takes besides those of links.
  Platform(std::istream& text, double latency) : latency(latency)
  {
    for (std::string line; std::getline(text, line);) {
      std::istringstream words(line.substr(0, line.find('#')));
      std::string kind;
      if (words >> kind)
        read(kind, words);
    }
    delays.assign(edges.size(), std::vector<double>(edges.size(), 0));
    for (size_t s = 0; s < edges.size(); s++)
      walk(s, s, s, {}, 0);
    zone->seal();
  }

  double delay(size_t from, size_t to) const { return delays[at[from]][at[to]]; }

private:
  const double latency;

  void read(const std::string& kind, std::istream& words)
  {
    if (kind == "switch") {
      std::string name;
      words >> name;
      switches.emplace(name, edges.size());
      edges.emplace_back();
    } else if (kind == "nodes") {
      int count = 0;
      std::string where, rate;
      words >> count >> where >> rate;
      while (count-- > 0) {
        std::string name = "n" + std::to_string(hosts.size());
        wires.push_back(zone->create_split_duplex_link(name, rate_of(rate))->set_latency(latency / 2)->seal());
        at.push_back(switches.at(where));
        hosts.push_back(zone->create_host(name, 1e9)->seal());
      }
    } else if (kind == "link") {
      std::string a, b, rate, option;
      words >> a >> b >> rate;
      double wait = 0;
      while (words >> option) {
        if (option.rfind("delay=", 0) != 0)
          throw std::invalid_argument("no such option of a link here: " + option);
        wait = unit(option.substr(6), {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}});
      }
      auto* link = zone->create_split_duplex_link(a + "-" + b, rate_of(rate))->seal();
      edges[switches.at(a)].push_back({switches.at(b), {link, sg4::LinkInRoute::Direction::UP}, wait});
      edges[switches.at(b)].push_back({switches.at(a), {link, sg4::LinkInRoute::Direction::DOWN}, wait});
    } else {
      throw std::invalid_argument("no such line in a topology: " + kind);
    }
  }

  // From switch `first` through `here` (which was reached from `before`): the switches are a tree, so each is met once.
  void walk(size_t first, size_t before, size_t here, const Route& route, double wait)
  {
    delays[first][here] = wait;
    for (size_t a = 0; a < hosts.size(); a++)
      for (size_t b = 0; b < hosts.size(); b++)
        if (a != b && at[a] == first && at[b] == here) {
          Route whole = {{wires[a], sg4::LinkInRoute::Direction::UP}};
          whole.insert(whole.end(), route.begin(), route.end());
          whole.emplace_back(wires[b], sg4::LinkInRoute::Direction::DOWN);
          zone->add_route(hosts[a]->get_netpoint(), hosts[b]->get_netpoint(), nullptr, nullptr, whole, false);
        }
    for (const Edge& edge : edges[here])
      if (edge.to != before) {
        Route longer = route;
        longer.push_back(edge.link);
        walk(first, here, edge.to, longer, wait + edge.delay);
      }
  }
};

// Bytes of the broadcast from `begin` on. `round` is of the scatter's ring alone: 0 for what came down the tree.
struct Message {
  uint64_t begin, bytes;
  size_t round = 0;
};

// An actor of a node, which sends batches one after the other, the messages of a batch at once: the next batch begins
// when all of one have left, as after MPI's Waitall.
class Outlet {
public:
  using Batch   = std::vector<std::pair<size_t, Message>>; // to whom and what
  using Arrived = std::function<void(size_t to, Message)>;

  Outlet(const Platform& net, size_t from, const Arrived& arrived) : net(net), arrived(arrived)
  {
    sg4::Actor::create("outlet", net.hosts[from], [this, from] {
      sg4::Actor::self()->daemonize();
      while (true) {
        waiting->acquire();
        Batch batch = std::move(queue.front());
        queue.pop_front();
        send_all(from, batch);
      }
    });
  }

  void send(Batch batch)
  {
    queue.push_back(std::move(batch));
    waiting->release();
  }

private:
  const Platform& net;
  const Arrived arrived;
  std::deque<Batch> queue;
  sg4::SemaphorePtr waiting = sg4::Semaphore::create(0);

  void send_all(size_t from, Batch& batch)
  {
    std::vector<sg4::CommPtr> comms;
    for (auto [to, message] : batch)
      comms.push_back(sg4::Comm::sendto_async(net.hosts[from], net.hosts[to], message.bytes));
    while (!comms.empty()) {
      ssize_t which = sg4::Comm::wait_any(comms);
      left(from, batch[which].first, batch[which].second);
      comms.erase(comms.begin() + which);
      batch.erase(batch.begin() + which);
    }
  }

  void left(size_t from, size_t to, Message message)
  {
    double wait = net.delay(from, to);
    if (wait > 0)
      sg4::Actor::create("wire", net.hosts[to], [this, wait, to, message] {
        sg4::this_actor::sleep_for(wait);
        arrived(to, message);
      });
    else
      arrived(to, message);
  }
};

// What all ways to broadcast have in common: who has how much since when.
class Broadcast {
  size_t left;
  sg4::SemaphorePtr over = sg4::Semaphore::create(0);

protected:
  const Platform& net;
  const size_t nodes;
  const uint64_t size;
  std::vector<std::unique_ptr<Outlet>> outlets; // of each node

  void has_all(size_t node)
  {
    finished[node] = sg4::Engine::get_clock();
    over->release();
  }

  virtual void begin()                               = 0; // at the origin
  virtual void arrived(size_t node, Message message) = 0;

public:
  std::vector<double> finished; // seconds, by node; the origin's stays 0

  Broadcast(const Platform& net, uint64_t size)
      : left(net.hosts.size() - 1), net(net), nodes(net.hosts.size()), size(size), finished(nodes)
  {
    for (size_t v = 0; v < nodes; v++)
      outlets.push_back(std::make_unique<Outlet>(net, v, [this](size_t to, Message m) { arrived(to, m); }));
  }
  virtual ~Broadcast() = default;

  void run()
  {
    sg4::Actor::create("origin", net.hosts[0], [this] {
      begin();
      for (; left > 0; left--)
        over->acquire();
    });
    sg4::Engine::get_instance()->run();
  }
};

// The lowest set bit of v; for node 0 the first power of two that is not below the number of nodes.
size_t lowbit(size_t v, size_t nodes)
{
  size_t bit = 1;
  while (bit < nodes && (v & bit) == 0)
    bit <<= 1;
  return bit;
}

// Segments down a tree: each to all children at once, or to one child after the other.
class Tree : public Broadcast {
  const uint64_t segment;
  const bool at_once;
  std::vector<std::vector<size_t>> children; // of each node
  std::vector<uint64_t> has;                 // bytes, of each node

  void begin() override
  {
    for (uint64_t at = 0; at < size; at += segment)
      forward(0, {at, std::min(segment, size - at)});
  }

  void arrived(size_t node, Message message) override
  {
    forward(node, message);
    if ((has[node] += message.bytes) == size)
      has_all(node);
  }

  void forward(size_t node, Message message)
  {
    Outlet::Batch batch;
    for (size_t child : children[node])
      batch.emplace_back(child, message);
    if (at_once)
      outlets[node]->send(batch);
    else
      for (auto& one : batch)
        outlets[node]->send({one});
  }

public:
  using Children = std::function<std::vector<size_t>(size_t node, size_t nodes)>;

  Tree(const Platform& net, uint64_t size, uint64_t segment, bool at_once, const Children& of)
      : Broadcast(net, size), segment(segment), at_once(at_once), has(nodes)
  {
    for (size_t v = 0; v < nodes; v++)
      children.push_back(of(v, nodes));
  }
};

std::vector<size_t> chain(size_t v, size_t n)
{
  return v + 1 < n ? std::vector<size_t>{v + 1} : std::vector<size_t>{};
}

std::vector<size_t> binary(size_t v, size_t n)
{
  std::vector<size_t> out;
  for (size_t child : {2 * v + 1, 2 * v + 2})
    if (child < n)
      out.push_back(child);
  return out;
}

std::vector<size_t> flat(size_t v, size_t n)
{
  std::vector<size_t> out(v == 0 ? n - 1 : 0);
  std::iota(out.begin(), out.end(), 1);
  return out;
}

// The largest subtree first.
std::vector<size_t> binomial(size_t v, size_t n)
{
  std::vector<size_t> out;
  for (size_t bit = lowbit(v, n) >> 1; bit > 0; bit >>= 1)
    if (v + bit < n)
      out.push_back(v + bit);
  return out;
}

// A block of each node down a binomial tree, each subtree's in one message, one child after the other; then the
// blocks go round a ring, the origin included: what a node gets in one round it sends in the next. A node sends one
// message at a time, its children's before its ring's, as blocking sends do.
class ScatterAllgather : public Broadcast {
  const uint64_t block;
  std::vector<std::vector<bool>> missing;   // blocks, of each node
  std::vector<size_t> lacks;                // and how many
  std::vector<bool> scattered;              // nodes that have their part
  std::vector<std::vector<Message>> early;  // of the ring, come to a node before its part did

  void begin() override { scatter(0); }

  // `node` has the blocks of its subtree: each child gets its part, and its own block starts round the ring.
  void scatter(size_t node)
  {
    scattered[node] = true;
    for (size_t child : binomial(node, nodes))
      outlets[node]->send({{child, span(child, lowbit(child, nodes))}});
    pass(node, span(node, 1));
    for (Message message : early[node])
      pass(node, message);
  }

  Message span(size_t first, size_t count) const
  {
    uint64_t from = std::min(size, block * first);
    return {from, std::min(size, block * (first + count)) - from};
  }

  void pass(size_t node, Message message)
  {
    if (++message.round < nodes)
      outlets[node]->send({{(node + 1) % nodes, message}});
  }

  void arrived(size_t node, Message message) override
  {
    bool before = lacks[node] > 0;
    for (uint64_t at = message.begin; at < message.begin + message.bytes; at += block)
      if (missing[node][at / block]) {
        missing[node][at / block] = false;
        lacks[node]--;
      }
    if (node > 0 && before && lacks[node] == 0)
      has_all(node);
    if (message.round == 0)
      scatter(node);
    else if (scattered[node])
      pass(node, message);
    else
      early[node].push_back(message);
  }

public:
  ScatterAllgather(const Platform& net, uint64_t size)
      : Broadcast(net, size), block((size + nodes - 1) / nodes), missing(nodes), lacks(nodes), scattered(nodes), early(nodes)
  {
    for (size_t v = 0; v < nodes; v++) {
      lacks[v] = (size + block - 1) / block;
      missing[v].assign(lacks[v], true);
    }
  }
};

std::unique_ptr<Broadcast> algorithm(const std::string& name, const Platform& net, uint64_t size, uint64_t segment)
{
  if (name == "chain")
    return std::make_unique<Tree>(net, size, segment, true, chain);
  if (name == "binary")
    return std::make_unique<Tree>(net, size, segment, true, binary);
  if (name == "flat")
    return std::make_unique<Tree>(net, size, segment, true, flat);
  if (name == "binomial")
    return std::make_unique<Tree>(net, size, size, false, binomial);
  if (name == "binomial-segmented")
    return std::make_unique<Tree>(net, size, segment, true, binomial);
  if (name == "scatter-allgather")
    return std::make_unique<ScatterAllgather>(net, size);
  throw std::invalid_argument("no such algorithm here: " + name);
}

} // namespace

int main(int argc, char** argv)
{
  sg4::Engine engine(&argc, argv);
  bool fitted = argc == 5 && std::string(argv[4]) == "LV08";
  if (argc != 4 && !fitted) {
    std::cerr << "usage: broadcast ALGORITHM SIZE SEGMENT [LV08] < topology\n";
    return 2;
  }
  for (const std::string& setting : precise)
    sg4::Engine::set_config(setting);
  for (const std::string& setting : fitted ? std::vector<std::string>{"network/model:LV08"} : exact)
    sg4::Engine::set_config(setting);
  Platform net(std::cin, fitted ? 30e-6 : 0);
  auto broadcast = algorithm(argv[1], net, std::stoull(argv[2]), std::stoull(argv[3]));
  broadcast->run();
  std::printf("[");
  for (size_t v = 1; v < net.hosts.size(); v++)
    std::printf("%s%.9f", v > 1 ? ", " : "", broadcast->finished[v]);
  std::printf("]\n");
}
