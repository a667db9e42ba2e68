"""How algorithms are called and drawn in tables and figures."""

# Okabe and Ito 2008, "Color universal design", https://jfly.uni-koeln.de/color/. Yellow is left out: too pale on white.
_BLUE, _VERMILION, _GREEN = "#0072B2", "#D55E00", "#009E73"
_ORANGE, _SKY, _PURPLE, _BLACK = "#E69F00", "#56B4E9", "#CC79A7", "#000000"

#: For curves that are not of algorithms: clients, clipping norms.
PALETTE = (_BLUE, _VERMILION, _GREEN, _ORANGE, _SKY, _PURPLE, _BLACK)

#: Algorithm -> (name, color), and "rounds" or "server steps" if it has such.
_LOOKS: dict[str, tuple[str, ...]] = {
    "adpsgd": ("AD-PSGD", _BLUE),
    "sync_sgd": ("SYNC", _VERMILION, "rounds"),
    "a2cid2": ("A²CiD²", "#A8C060"),
    "decentralized_sgd": ("D-PSGD", _GREEN, "rounds"),
    "corrected_gossip": ("corrected gossip", "#0000FF", "rounds"),
    "k_gt": ("K-GT", "#442244", "rounds"),
    "asy_sonata": ("ASY-SONATA", "#0066EE"),
    "gossip_learning": ("gossip learning", "#B2182B"),
    "sgp": ("SGP", _SKY, "rounds"),
    "privsgp_vr": ("PrivSGP-VR", "#000060", "rounds"),
    "epidemic": ("Epidemic Learning", "#E07008", "rounds"),
    "matcha": ("MATCHA", "#883010", "rounds"),
    "multi_walk": ("Multi-Walk", "#0020E0"),
    "teleportation": ("Teleportation", "#080090", "rounds"),
    "swift": ("SWIFT", "#001038"),
    "adsgd": ("ADSGD", "#187890"),
    "plexus": ("Plexus", "#60C0C0", "rounds"),
    "divshare": ("DivShare", "#A820F8"),
    "without_replacement_sgd": ("SGD without replacement", "#6A5ACD"),
    "deep_q_sgd": ("deep-Q SGD", "#999933"),
    "random_walk_sgd": ("random walk SGD", "#44AA99"),
    "fedavg": ("FedAvg", "#1F4E9E", "rounds"),
    "fedprox": ("FedProx", "#5AAE61", "rounds"),
    "scaffold": ("SCAFFOLD", "#000033", "rounds"),
    "feddyn": ("FedDyn", "#4400BB", "rounds"),
    "fednova": ("FedNova", "#771133", "rounds"),
    "diloco": ("DiLoCo", "#600000", "rounds"),
    "ditto": ("Ditto", "#662200", "rounds"),
    "apfl": ("APFL", "#AA7744", "rounds"),
    "pfedme": ("pFedMe", "#CC99BB", "rounds"),
    "async_local_sgd": ("async local SGD", "#6060F0"),
    "halos": ("HALoS", "#619B91"),
    "noloco": ("NoLoCo", "#B06000", "rounds"),
    "gasloc": ("GASLoC", "#7890D8", "rounds"),
    "streaming_diloco": ("Streaming DiLoCo", "#1E0287"),
    "decoupled_diloco": ("Decoupled DiLoCo", "#4A1252"),
    "fedbuff": ("FedBuff", "#E78AC3", "server steps"),
    "fedasync": ("FedAsync", "#01665E"),
    "async_fl": ("async FL", _ORANGE, "server steps"),
    "async_sgd": ("ASGD", "#4B0082"),
    "ringmaster": ("Ringmaster ASGD", "#0048F0"),
    "rennala": ("Rennala SGD", "#30C090", "server steps"),
    "m_sync_sgd": ("m-synchronous SGD", "#9078F0", "server steps"),
    "mindflayer": ("MindFlayer SGD", "#5533BB", "server steps"),
    "ca2fl": ("CA2FL", "#129EA4", "server steps"),
    "ace": ("ACE", "#6D2061"),
    "fadas": ("FADAS", "#7DC05E", "server steps"),
    "fedat": ("FedAT", "#77BBCC", "server steps"),
    "favas": ("FAVAS", "#000044", "server steps"),
    "area": ("AREA", "#225566", "server steps"),
    "ringleader": ("Ringleader ASGD", "#B91900", "server steps"),
    "centralized_sgd": ("CSGD", _BLACK),
    "audp": ("AUDP", "#C51B7D"),
    "mapa": ("MAPA", "#117733"),
}
#: The algorithms' names in papers.
NAMES = {kind: name for kind, (name, *_) in _LOOKS.items()}
#: Fixed colors. Those of algorithms that are often drawn together are far apart for the color-blind, too; others may
#: be alike, and differ by their line styles. An algorithm that is not here has one of the palette, by its name.
COLORS = {kind: color for kind, (_, color, *_) in _LOOKS.items()}

#: Algorithms whose staleness counts steps of the server; that of all others counts updates of all clients.
SERVER_STEPS = {kind for kind, (*_, steps) in _LOOKS.items() if steps == "server steps"}
#: Algorithms that have rounds; for all others the column `rounds` holds updates per client on average.
ROUNDS = {kind for kind, (*_, steps) in _LOOKS.items() if steps == "rounds"} | SERVER_STEPS


def name_of(algorithm: str, private: bool = False, title: str = "") -> str:
    """Return an algorithm's title, or its name as papers write it."""
    return title or ("A(DP)²SGD" if private and algorithm == "adpsgd" else NAMES.get(algorithm, algorithm))
