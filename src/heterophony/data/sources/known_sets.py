"""Every known data set, declared. URLs and md5 as torchvision publishes them; what is unsure is left out."""

from __future__ import annotations

from heterophony.data.digits import Embedded
from heterophony.data.sources.cifar import Cifar
from heterophony.data.sources.folders import Domains, Listed, TrainAndTest
from heterophony.data.sources.heart import CLASSES, FILES, HOSPITALS, Heart
from heterophony.data.sources.idx import Idx
from heterophony.data.sources.known_set import File, KnownSet, PackedFile
from heterophony.data.sources.libsvm import Libsvm
from heterophony.data.sources.lines import Lines
from heterophony.data.sources.mat import Mat

_DIGITS = tuple("0123456789")
_GARMENTS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_PACS = ("photo", "art_painting", "cartoon", "sketch")
_PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
_PACS_IMAGES = {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929}
_OFFICE = ("art", "clipart", "product", "real_world")
_UD = ("en", "de", "fr", "es", "pt", "nl", "ru", "fi", "id", "sv")
_SIB = (
    *("eng_Latn", "deu_Latn", "fra_Latn", "spa_Latn", "por_Latn", "nld_Latn", "rus_Cyrl", "fin_Latn", "ind_Latn"),
    *("swe_Latn", "zho_Hans", "arb_Arab", "hin_Deva", "swh_Latn", "tur_Latn"),
)
_TOPICS = ("entertainment", "geography", "health", "politics", "science/technology", "sports", "travel")

_MNIST_TERMS = "LeCun, Cortes, Burges; usually quoted as CC BY-SA 3.0"
_HEART_TERMS = "CC BY 4.0 (UCI Machine Learning Repository, Heart Disease: Janosi et al. 1988)"
_CIFAR_TERMS = "no formal licence; cite Krizhevsky 2009"


def _idx(url: str, name: str, md5: str, raw_md5: str | None = None) -> File:
    return File(f"{name}.gz", md5, f"{url}/{name}.gz", (PackedFile(name, raw_md5),))


def _archive(name: str, md5: str, folder: str, members: dict[str, str]) -> File:
    inside = tuple(PackedFile(f"{folder}/{member}", checksum) for member, checksum in members.items())
    return File(name, md5, f"https://www.cs.toronto.edu/~kriz/{name}", inside)


def _file(url: str, name: str, md5: str) -> File:
    return File(name, md5, f"{url}/{name}")


_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist"
_FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_USPS_URL = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass"
_SVHN_URL = "http://ufldl.stanford.edu/housenumbers"

_ALL = [
    KnownSet(
        name="digits-embedded",
        summary="1,000 MNIST training digits, 100 a class, shipped with the package",
        terms=_MNIST_TERMS,
        readers=(Embedded(),),
        base="mnist",
        classes=_DIGITS,
        counts=(1000, 0),
    ),
    KnownSet(
        name="mnist",
        summary="handwritten digits, 28x28 grey",
        terms=_MNIST_TERMS,
        readers=(Idx(),),
        npz=("mnist",),
        folders=("mnist", "MNIST/raw"),
        files=(
            _idx(
                _MNIST_URL,
                "train-images-idx3-ubyte",
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "6bbc9ace898e44ae57da46a324031adb",
            ),
            _idx(
                _MNIST_URL,
                "train-labels-idx1-ubyte",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "a25bea736e30d166cdddb491f175f624",
            ),
            _idx(
                _MNIST_URL,
                "t10k-images-idx3-ubyte",
                "9fb629c4189551a2d022fa330f9573f3",
                "2646ac647ad5339dbf082846283269ea",
            ),
            _idx(
                _MNIST_URL,
                "t10k-labels-idx1-ubyte",
                "ec29112dd5afa0611ce80d1b7f02629c",
                "27ae3e4e09519cfbb04c329615203637",
            ),
        ),
        classes=_DIGITS,
        counts=(60000, 10000),
    ),
    KnownSet(
        name="fashion-mnist",
        summary="articles of clothing, 28x28 grey",
        terms="MIT (Zalando)",
        readers=(Idx(),),
        npz=("fashion-mnist",),
        folders=("fashion-mnist", "FashionMNIST/raw"),
        files=(
            _idx(_FASHION_URL, "train-images-idx3-ubyte", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            _idx(_FASHION_URL, "train-labels-idx1-ubyte", "25c81989df183df01b3e8a0aad5dffbe"),
            _idx(_FASHION_URL, "t10k-images-idx3-ubyte", "bef4ecab320f06d8554ea6380940ec79"),
            _idx(_FASHION_URL, "t10k-labels-idx1-ubyte", "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
        classes=_GARMENTS,
        counts=(60000, 10000),
    ),
    KnownSet(
        name="fashion-mnist-mini",
        summary="a part of Fashion-MNIST, such as the first 200 and 100 images of each class",
        terms="MIT (Zalando)",
        base="fashion-mnist",
        npz=("fashion-mnist-mini",),
        classes=_GARMENTS,
    ),
    KnownSet(
        name="cifar10",
        summary="photographs of ten kinds of things, 32x32 colour",
        terms=_CIFAR_TERMS,
        readers=(Cifar(),),
        npz=("cifar10",),
        folders=("cifar10", "."),
        files=(
            _archive(
                "cifar-10-python.tar.gz",
                "c58f30108f718f92721af3b95e74349a",
                "cifar-10-batches-py",
                {
                    "data_batch_1": "c99cafc152244af753f735de768cd75f",
                    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                    "data_batch_4": "634d18415352ddfa80567beed471001a",
                    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
                    "test_batch": "40351d587109b95175f43aff81a1287e",
                    "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
                },
            ),
        ),
        counts=(50000, 10000),
    ),
    KnownSet(
        name="cifar100",
        summary="photographs of a hundred kinds of things in 20 groups, 32x32 colour",
        terms=_CIFAR_TERMS,
        readers=(Cifar(),),
        npz=("cifar100",),
        folders=("cifar100", "."),
        files=(
            _archive(
                "cifar-100-python.tar.gz",
                "eb9058c3a382ffc7106e4002c42a8d85",
                "cifar-100-python",
                {
                    "train": "16019d7e3df5f24257cddd939b257f8d",
                    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
                    "meta": "7973b15100ade9c7d40fb424638fde48",
                },
            ),
        ),
        counts=(50000, 10000),
    ),
    KnownSet(
        name="usps",
        summary="handwritten digits of the US postal service, 16x16 grey",
        terms="no explicit licence (Hull 1994)",
        readers=(Libsvm(),),
        npz=("usps",),
        folders=("usps", "."),
        files=(
            _file(_USPS_URL, "usps.bz2", "ec16c51db3855ca6c91edd34d0e9b197"),
            _file(_USPS_URL, "usps.t.bz2", "8ea070ee2aca1ac39742fdd1ef5ed118"),
        ),
        classes=_DIGITS,
        counts=(7291, 2007),
    ),
    KnownSet(
        name="svhn",
        summary="cropped house numbers, 32x32 colour",
        terms="non-commercial use only (Netzer et al. 2011)",
        readers=(Mat(),),
        npz=("svhn",),
        folders=("svhn", "."),
        files=(
            _file(_SVHN_URL, "train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
            _file(_SVHN_URL, "test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
        ),
        classes=_DIGITS,
        counts=(73257, 26032),
    ),
    KnownSet(
        name="mnistm",
        summary="MNIST digits blended with photographs, 32x32 colour",
        terms="research use (Ganin and Lempitsky 2015)",
        readers=(Listed(),),
        # Row i is MNIST's digit i in other colours, so for the leakage check it is that image.
        base="mnist",
        npz=("mnistm",),
        folders=("mnistm", "mnist_m"),
        classes=_DIGITS,
        counts=(59001, 9001),
    ),
    KnownSet(
        name="syn",
        summary="synthetic digits, 32x32 colour",
        terms="research use (Ganin and Lempitsky 2015)",
        readers=(Mat(), TrainAndTest()),
        npz=("syn",),
        folders=("syn", "SYN", "."),
        files=(File("synth_train_32x32.mat"), File("synth_test_32x32.mat")),
        classes=_DIGITS,
        side=32,
    ),
    *(
        KnownSet(
            name=f"pacs/{domain}",
            summary=f"seven kinds of things, domain {domain}; 64x64 colour unless asked otherwise",
            terms="no formal licence; research use (Li et al. 2017)",
            readers=(Domains(),),
            npz=("pacs", "pacs64"),
            folders=("pacs", "PACS"),
            classes=_PACS_CLASSES,
            counts=(_PACS_IMAGES[domain], 0),
            domain=domain,
            domains=_PACS,
            side=64,
        )
        for domain in _PACS
    ),
    *(
        KnownSet(
            name=f"office-home/{domain}",
            summary=f"65 kinds of things, domain {domain}; 64x64 colour unless asked otherwise",
            terms="research and educational use only (Venkateswara et al. 2017)",
            readers=(Domains(),),
            npz=("office-home",),
            folders=("office-home", "OfficeHome", "OfficeHomeDataset_10072016"),
            domain=domain,
            domains=_OFFICE,
            side=64,
        )
        for domain in _OFFICE
    ),
    *(
        KnownSet(
            name=f"ud/{language}",
            summary=f"text in {language} from Universal Dependencies, as bytes, for language models",
            terms="CC BY-SA 4.0 (the treebanks' own)",
            readers=(Lines(),),
            folders=(".", "text"),
            files=(File("text-ud10.jsonl.gz"),),
            domain=language,
            domains=_UD,
        )
        for language in _UD
    ),
    *(
        KnownSet(
            name=f"sib200/{language}",
            summary=f"sentences in {language} on seven topics, as bytes; the same sentences in every language",
            terms="CC BY-SA 4.0 (Adelani et al. 2024; text of FLORES-200)",
            readers=(Lines(),),
            base="sib200",
            folders=(".", "text"),
            files=(File("text-sib200.jsonl.gz"),),
            classes=_TOPICS,
            counts=(800, 204),
            domain=language,
            domains=_SIB,
        )
        for language in _SIB
    ),
    KnownSet(
        name="heart",
        summary="patients of four hospitals, 13 numbers each: who has a heart disease; prepared as FLamby does",
        terms=_HEART_TERMS,
        readers=(Heart(),),
        folders=("heart", "."),
        files=FILES,
        classes=CLASSES,
        counts=(486, 254),
    ),
    *(
        KnownSet(
            name=f"heart/{hospital}",
            summary=f"the patients of one hospital, {hospital}",
            terms=_HEART_TERMS,
            readers=(Heart(),),
            base="heart",
            folders=("heart", "."),
            files=(file,),
            classes=CLASSES,
            counts=counts,
            domain=hospital,
            domains=HOSPITALS,
        )
        for hospital, file, counts in zip(HOSPITALS, FILES, ((199, 104), (172, 89), (30, 16), (85, 45)), strict=True)
    ),
]

KNOWN_SETS: dict[str, KnownSet] = {entry.name: entry for entry in _ALL}
