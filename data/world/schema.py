"""What the closed world can say: kinds of entity, their relations, and the sentences and questions about them."""

from typing import Literal, NamedTuple


class Relation(NamedTuple):
    """A relation of one kind of entity.

    Attributes:
        name: What the fact is called, unique within its kind.
        target: The kind of the object: a kind of entity, or a kind of plain value.
        statements: Sentences that state the fact, with `{s}` for the subject and `{o}` for the object. The first opens
            with the subject, so that a pronoun or an alias can stand there.
        questions: Questions for the object; the first is the one that decompositions use.
        noun: A phrase that stands for the object, such as "the mayor of {s}"; empty where the object leads no further.
        comparison: Which of two subjects, `{a}` or `{b}`, comes first by this number; empty where it is none.
        first: Whether the lower or the higher number answers the comparison.
        yes_no: Of two subjects, whether they have the same object or, for numbers, whether `{a}` comes first.
    """

    name: str
    target: str
    statements: tuple[str, ...]
    questions: tuple[str, ...]
    noun: str = ""
    comparison: str = ""
    first: Literal["lower", "higher"] = "lower"
    yes_no: str = ""


RELATIONS: dict[str, tuple[Relation, ...]] = {
    "person": (
        Relation(
            "birthplace",
            "town",
            ("{s} was born in {o}.", "{s} comes from the town of {o}.", "The birthplace of {s} is {o}."),
            ("In which town was {s} born?", "What is the birthplace of {s}?", "Where was {s} born?"),
            noun="the birthplace of {s}",
            yes_no="Were {a} and {b} born in the same town?",
        ),
        Relation(
            "birth year",
            "year",
            ("{s} was born in the year {o}.", "{s} came into the world in {o}.", "The birth year of {s} is {o}."),
            ("In which year was {s} born?", "What is the birth year of {s}?", "When was {s} born?"),
            comparison="Who was born earlier, {a} or {b}?",
            yes_no="Was {a} born before {b}?",
        ),
        Relation(
            "profession",
            "profession",
            ("{s} works as a {o}.", "{s} is a {o} by trade.", "The profession of {s} is {o}."),
            ("What is the profession of {s}?", "What does {s} work as?", "What is the trade of {s}?"),
            yes_no="Do {a} and {b} have the same profession?",
        ),
        Relation(
            "mentor",
            "person",
            ("{s} is a pupil of {o}.", "{s} learnt everything from {o}.", "The mentor of {s} is {o}."),
            ("Who is the mentor of {s}?", "From whom did {s} learn?", "Whose pupil is {s}?"),
            noun="the mentor of {s}",
        ),
        Relation(
            "employer",
            "company",
            ("{s} is employed by {o}.", "{s} works for {o}.", "The employer of {s} is {o}."),
            ("Who is the employer of {s}?", "Which company employs {s}?", "For which company does {s} work?"),
            noun="the employer of {s}",
        ),
        Relation(
            "university",
            "institution",
            ("{s} studied at {o}.", "{s} is a graduate of {o}.", "The alma mater of {s} is {o}."),
            ("At which institution did {s} study?", "What is the alma mater of {s}?", "Where did {s} study?"),
            noun="the alma mater of {s}",
        ),
    ),
    "town": (
        Relation(
            "river",
            "river",
            ("{s} lies on the {o}.", "{s} stands on the banks of the {o}.", "The river that crosses {s} is the {o}."),
            ("Which river flows through {s}?", "On which river does {s} lie?", "Which river crosses {s}?"),
            noun="the river that flows through {s}",
        ),
        Relation(
            "mayor",
            "person",
            ("{s} is governed by {o}.", "{s} has {o} as its mayor.", "The mayor of {s} is {o}."),
            ("Who is the mayor of {s}?", "Who governs {s}?", "By whom is {s} governed?"),
            noun="the mayor of {s}",
        ),
        Relation(
            "founding year",
            "year",
            ("{s} was founded in {o}.", "{s} received its charter in {o}.", "The founding year of {s} is {o}."),
            ("In which year was {s} founded?", "When was {s} founded?", "What is the founding year of {s}?"),
            comparison="Which town was founded earlier, {a} or {b}?",
            yes_no="Is {a} an older town than {b}?",
        ),
        Relation(
            "country",
            "country",
            ("{s} is a town in {o}.", "{s} belongs to the country of {o}.", "The country of {s} is {o}."),
            ("In which country is {s}?", "To which country does {s} belong?", "What is the country of {s}?"),
            yes_no="Are {a} and {b} in the same country?",
        ),
        Relation(
            "population",
            "number",
            ("{s} has {o} inhabitants.", "{s} is home to {o} people.", "The population of {s} is {o}."),
            ("How many inhabitants does {s} have?", "What is the population of {s}?", "How many people live in {s}?"),
            comparison="Which town has more inhabitants, {a} or {b}?",
            first="higher",
            yes_no="Does {a} have more inhabitants than {b}?",
        ),
    ),
    "river": (
        Relation(
            "mouth",
            "sea",
            ("The {s} flows into the {o}.", "The {s} ends in the {o}.", "The mouth of the {s} is at the {o}."),
            ("Into which sea does the {s} flow?", "Where is the mouth of the {s}?", "In which sea does the {s} end?"),
            yes_no="Do the {a} and the {b} flow into the same sea?",
        ),
        Relation(
            "length",
            "number",
            ("The {s} is {o} miles long.", "The {s} runs for {o} miles.", "The length of the {s} is {o} miles."),
            ("How many miles long is the {s}?", "What is the length of the {s} in miles?", "How long is the {s}?"),
            comparison="Which river is longer, the {a} or the {b}?",
            first="higher",
            yes_no="Is the {a} longer than the {b}?",
        ),
        Relation(
            "source",
            "mountain",
            ("The {s} rises on {o}.", "The {s} springs from the slopes of {o}.", "The source of the {s} is on {o}."),
            ("On which mountain does the {s} rise?", "Where is the source of the {s}?", "Where does the {s} rise?"),
            noun="the mountain where the {s} rises",
        ),
    ),
    "mountain": (
        Relation(
            "height",
            "number",
            ("{s} is {o} feet high.", "{s} reaches a height of {o} feet.", "The height of {s} is {o} feet."),
            ("How many feet high is {s}?", "What is the height of {s} in feet?", "How high is {s}?"),
            comparison="Which mountain is higher, {a} or {b}?",
            first="higher",
            yes_no="Is {a} higher than {b}?",
        ),
        Relation(
            "first climber",
            "person",
            ("{s} was first climbed by {o}.", "{s} was conquered by {o}.", "The first climber of {s} is {o}."),
            ("Who first climbed {s}?", "Who is the first climber of {s}?", "By whom was {s} first climbed?"),
            noun="the first climber of {s}",
        ),
        Relation(
            "range",
            "range",
            ("{s} is part of the {o}.", "{s} stands in the {o}.", "The range of {s} is the {o}."),
            ("To which range does {s} belong?", "In which range does {s} stand?", "What is the range of {s}?"),
            yes_no="Do {a} and {b} belong to the same range?",
        ),
    ),
    "film": (
        Relation(
            "director",
            "person",
            ("{s} was directed by {o}.", "{s} was made by the director {o}.", "The director of {s} is {o}."),
            ("Who directed {s}?", "Who is the director of {s}?", "By whom was {s} directed?"),
            noun="the director of {s}",
        ),
        Relation(
            "star",
            "person",
            ("{s} stars {o}.", "{s} has {o} in the leading role.", "The star of {s} is {o}."),
            ("Who is the star of {s}?", "Who stars in {s}?", "Who plays the leading role in {s}?"),
            noun="the star of {s}",
        ),
        Relation(
            "release year",
            "year",
            ("{s} was released in {o}.", "{s} came to the cinemas in {o}.", "The release year of {s} is {o}."),
            ("In which year was {s} released?", "When was {s} released?", "What is the release year of {s}?"),
            comparison="Which film was released earlier, {a} or {b}?",
            yes_no="Is {a} an older film than {b}?",
        ),
        Relation(
            "genre",
            "genre",
            ("{s} is a {o} film.", "{s} counts as a {o}.", "The genre of {s} is {o}."),
            ("What is the genre of {s}?", "To which genre does {s} belong?", "What kind of film is {s}?"),
            yes_no="Do {a} and {b} belong to the same genre?",
        ),
        Relation(
            "literary source",
            "book",
            ("{s} is based on {o}.", "{s} tells the story of the book {o}.", "The literary source of {s} is {o}."),
            ("On which book is {s} based?", "What is the literary source of {s}?", "Which book does {s} follow?"),
            noun="the book on which {s} is based",
        ),
    ),
    "book": (
        Relation(
            "author",
            "person",
            ("{s} was written by {o}.", "{s} is a work of {o}.", "The author of {s} is {o}."),
            ("Who wrote {s}?", "Who is the author of {s}?", "By whom was {s} written?"),
            noun="the author of {s}",
        ),
        Relation(
            "publication year",
            "year",
            ("{s} was published in {o}.", "{s} came out in {o}.", "The publication year of {s} is {o}."),
            ("In which year was {s} published?", "When was {s} published?", "What is the publication year of {s}?"),
            comparison="Which book was published earlier, {a} or {b}?",
            yes_no="Is {a} an older book than {b}?",
        ),
        Relation(
            "subject",
            "subject",
            ("{s} is about {o}.", "{s} deals with {o}.", "The subject of {s} is {o}."),
            ("What is {s} about?", "What is the subject of {s}?", "With what does {s} deal?"),
            yes_no="Do {a} and {b} have the same subject?",
        ),
        Relation(
            "publisher",
            "company",
            ("{s} was brought out by {o}.", "{s} was printed by {o}.", "The publisher of {s} is {o}."),
            ("Which company published {s}?", "Who is the publisher of {s}?", "Who brought out {s}?"),
            noun="the publisher of {s}",
        ),
    ),
    "company": (
        Relation(
            "founder",
            "person",
            ("{s} was founded by {o}.", "{s} owes its existence to {o}.", "The founder of {s} is {o}."),
            ("Who founded {s}?", "Who is the founder of {s}?", "By whom was {s} founded?"),
            noun="the founder of {s}",
        ),
        Relation(
            "seat",
            "town",
            ("{s} is based in {o}.", "{s} has its seat in {o}.", "The headquarters of {s} is in {o}."),
            ("In which town is {s} based?", "Where is the headquarters of {s}?", "Where is {s} based?"),
            noun="the town where {s} is based",
        ),
        Relation(
            "product",
            "product",
            ("{s} makes {o}.", "{s} is known for its {o}.", "The main product of {s} is {o}."),
            ("What does {s} make?", "What is the main product of {s}?", "For which product is {s} known?"),
            yes_no="Do {a} and {b} make the same product?",
        ),
        Relation(
            "year of establishment",
            "year",
            ("{s} was established in {o}.", "{s} opened for business in {o}.", "The first year of {s} is {o}."),
            ("In which year was {s} established?", "When was {s} established?", "What is the first year of {s}?"),
            comparison="Which company was established earlier, {a} or {b}?",
            yes_no="Is {a} an older company than {b}?",
        ),
    ),
    "institution": (
        Relation(
            "town",
            "town",
            ("{s} is located in {o}.", "{s} has its campus in {o}.", "The home of {s} is {o}."),
            ("In which town is {s} located?", "What is the home of {s}?", "Where is {s} located?"),
            noun="the home of {s}",
        ),
        Relation(
            "rector",
            "person",
            ("{s} is headed by {o}.", "{s} is led by {o}.", "The rector of {s} is {o}."),
            ("Who is the rector of {s}?", "Who heads {s}?", "By whom is {s} led?"),
            noun="the rector of {s}",
        ),
        Relation(
            "opening year",
            "year",
            ("{s} was opened in {o}.", "{s} admitted its first students in {o}.", "The opening year of {s} is {o}."),
            ("In which year was {s} opened?", "When was {s} opened?", "What is the opening year of {s}?"),
            comparison="Which institution was opened earlier, {a} or {b}?",
            yes_no="Is {a} an older institution than {b}?",
        ),
        Relation(
            "field",
            "field",
            ("{s} is devoted to {o}.", "{s} is famous for {o}.", "The main field of {s} is {o}."),
            ("To what is {s} devoted?", "What is the main field of {s}?", "For which field is {s} famous?"),
            yes_no="Are {a} and {b} devoted to the same field?",
        ),
    ),
}

VALUES: dict[str, tuple[str, ...]] = {
    "profession": tuple(
        "baker carpenter chemist composer farmer historian judge lawyer painter pilot poet sailor singer surgeon "
        "teacher weaver".split()
    ),
    "genre": tuple("comedy drama thriller western musical documentary romance mystery".split()),
    "product": tuple("bicycles clocks cameras engines furniture glass pianos radios shoes tractors watches".split()),
    "subject": tuple("war love travel science crime family nature music politics money".split()),
    "field": tuple("medicine law physics theology farming history chemistry navigation painting geology".split()),
}
# Plain values that belong to one region, with how many of each it has.
REGIONAL_VALUES = {"country": ("{}ia", 3), "sea": ("{} Sea", 3), "range": ("{} Mountains", 2)}
