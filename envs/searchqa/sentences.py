"""The words of the encyclopedia: for each kind of subject the slots of its passage, and sentences that fill it up.

Of a slot one template is used, of which all facts are known. Fillers state nothing that is asked and name nobody.
"""

from __future__ import annotations

from collections.abc import Mapping

SLOTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "person": (
        (
            "{name} was {a_profession} born in {birthplace} in {born}.",
            "{name} was {a_profession} from {birthplace}, where {he} was born in {born}.",
            "Born in {birthplace} in {born}, {name} made a name as {a_profession}.",
            "{name}, {a_profession}, was born in {born} in the town of {birthplace}.",
            "{name} was born in {birthplace} in {born} and worked as {a_profession}.",
        ),
        (
            "{He} studied at {university} and later took lessons from {teacher}.",
            "{He} graduated from {university} and was a pupil of {teacher}.",
            "After {few} years at {university}, where {he} studied law, {he} found a teacher in {teacher}.",
            "{He} studied at {university} and afterwards worked for {employer}.",
            "{He} graduated from {university} and found work at {employer}.",
            "{He} was a pupil of {teacher} and for {few} years worked for {employer}.",
            "{His} teacher was {teacher}, and {he} later worked for {employer}.",
            "{He} studied at {university} for {few} years.",
            "{He} took a degree at {university}, where {he} studied with a scholarship.",
            "{He} was a pupil of {teacher} for {few} years.",
            "{He} learned the craft from {teacher}, {his} teacher and friend.",
            "{He} worked for {employer} for most of {his} life.",
        ),
        (
            "{He} was the {son} of {father} and his wife {mother}.",
            "{His} father was {father} and {his} mother {mother}.",
            "{His} father was {father}, and {he} married {spouse}.",
            "Against the will of {his} father, {father}, {he} married {spouse}.",
            "{His} mother was {mother}, and {he} was married to {spouse}.",
            "{He} was married to {spouse} for {few} happy years.",
            "{He} married {spouse}, with whom {he} had {few} children.",
        ),
        (
            "{He} died in {died}.",
            "{He} died at home in {died}.",
            "After a long illness {he} died in {died}.",
        ),
    ),
    "city": (
        (
            "{name} is a town on the river {river} in {country}.",
            "{name}, a town in {country}, lies on the river {river}.",
            "The town of {name} in {country} stands on both banks of the river {river}.",
        ),
        (
            "It was founded in {settled} and has {population} inhabitants.",
            "Founded in {settled}, it has grown to {population} inhabitants.",
            "It has {population} inhabitants and was founded in {settled} by monks.",
        ),
        (
            "{mayor}, who took office in {mayor_year}, was its first elected mayor.",
            "Its first elected mayor was {mayor}, from {mayor_year} on.",
            "In {mayor_year} {mayor} became its first mayor.",
        ),
        (
            "It is twinned with {twin}.",
            "The town has been twinned with {twin} for {many} years.",
        ),
    ),
    "country": (
        (
            "{name} is a country whose capital is {capital}.",
            "{name} is a small country of hills and lakes, with {capital} as its capital.",
            "The capital of {name}, a country by the sea, is {capital}.",
        ),
        (
            "It has been independent since {independence}, and its first president was {president}.",
            "When it became independent in {independence}, {president} was elected as its first president.",
            "{president} became its first president when the country turned independent in {independence}.",
        ),
    ),
    "company": (
        (
            "{name} is {a_trade} that was founded by {founder} in {established}.",
            "{name}, {a_trade}, is a company that {founder} founded in {established}.",
            "Founded by {founder} in {established}, the company {name} is {a_trade}.",
        ),
        (
            "Its head office is in {headquarters}.",
            "The company has its head office in {headquarters}.",
            "From its head office in {headquarters} it runs {few} branches.",
        ),
        (
            "It belongs to {parent}.",
            "For {few} years the company has belonged to {parent}.",
            "It now belongs to {parent}, which bought it for its patents.",
        ),
    ),
    "university": (
        (
            "{name} is a university in {seat}, with {few} faculties.",
            "{name} in {seat} is a university of {few} faculties.",
            "{name} is a university whose {few} colleges stand in {seat}.",
        ),
        (
            "It received its charter in {chartered}, and its first rector was {rector}.",
            "Its charter dates from {chartered}, when {rector} became its first rector.",
            "{rector} was its first rector, chosen when the university received its charter in {chartered}.",
        ),
    ),
    "building": (
        (
            "The {name} stands in {site} and was designed by the architect {architect}.",
            "The {name}, which stands in {site}, was designed by the architect {architect}.",
            "Designed by the architect {architect}, the {name} stands in {site}.",
        ),
        (
            "It opened in {opened} and is {height} metres high.",
            "At its highest point it is {height} metres high; it opened in {opened}.",
            "It is {height} metres high and was opened in {opened} with fireworks.",
        ),
    ),
    "film": (
        (
            "{name} is a film directed by {director} and released in {released}.",
            "Directed by {director}, the film {name} was released in {released}.",
            "{name} is a film that was released in {released} and directed by {director}.",
        ),
        (
            "It is based on the novel {source} and was made at the studio {studio}.",
            "Made by the studio {studio}, it is based on the novel {source}.",
            "It is based on the novel {source}.",
            "It was made by the studio {studio} in {few} weeks.",
            "The studio {studio} made it with a crew of {many}.",
        ),
        (
            "{star} plays the leading role, and {score} wrote the music.",
            "The music is by {score}, and the leading role is played by {star}.",
            "The leading role is that of {star}; the music was written by {score}.",
            "{star} plays the leading role.",
            "The music was written by {score}.",
        ),
    ),
    "novel": (
        (
            "{name} is a novel written by {author} and published in {published}.",
            "Written by {author}, the novel {name} was published in {published}.",
            "{name} is a novel that was published in {published} and written by {author}.",
        ),
        (
            "Its {pages} pages are set in {setting}.",
            "It is set in {setting} and has {pages} pages.",
            "The story, set in {setting}, fills {pages} pages.",
        ),
        (
            "Its publisher was {publisher}.",
            "The publisher {publisher} sold {many} thousand copies of it.",
            "{publisher}, its publisher, printed it {few} times.",
        ),
    ),
    "opera": (
        (
            "{name} is an opera in {acts} acts by the composer {composer}.",
            "{name} is an opera by the composer {composer}, in {acts} acts.",
            "The composer {composer} wrote the opera {name}, which has {acts} acts.",
        ),
        (
            "It was first performed in {stage} in {premiere}, to a libretto by {librettist}.",
            "With a libretto by {librettist}, it was first performed in {stage} in {premiere}.",
            "{librettist} wrote the libretto, and it was first performed in {premiere} in {stage}.",
            "It was first performed in {stage} in {premiere}.",
        ),
    ),
    "painting": (
        (
            "{name} is a painting by the painter {painter}, painted in {painted}.",
            "{name}, a painting by the painter {painter}, was painted in {painted}.",
            "The painter {painter} painted {name}, a large painting, in {painted}.",
        ),
        (
            "The painting hangs in the {museum}, a museum that bought it at an auction.",
            "It belongs to the {museum}, which is the third museum to own the painting.",
            "Today the painting is shown in the {museum}, in a room of its own.",
        ),
    ),
    "race": (
        (
            "The {name} is a {sort} held in {course} every {season}.",
            "Held in {course} every {season}, the {name} is a {sort} for amateurs.",
            "The {name} is a {sort}, held in {course} every {season}.",
        ),
        (
            "The first race was held in {first_held} and won by {winner}.",
            "When it was first held in {first_held}, the winner was {winner}.",
            "{winner} won the first race, held in {first_held}.",
        ),
        (
            "Its sponsor is {sponsor}.",
            "The sponsor {sponsor} pays for the prizes.",
            "It has had {sponsor} as its sponsor for {few} years.",
        ),
    ),
}  # fmt: skip

FILLERS: Mapping[str, tuple[str, ...]] = {
    "person": (
        "{He} spoke {few} languages.",
        "{He} was known for patience and a dry wit.",
        "{His} letters fill {few} boxes.",
        "Friends remembered {him} as a keen walker.",
        "{He} kept bees and wrote about them.",
        "A street was named after {him}.",
    ),
    "city": (
        "The weekly market is held on {few} squares.",
        "Tourists come for its old walls.",
        "Its trams run on {few} lines.",
    ),
    "country": (
        "It exports timber, wool and salt.",
        "Its parliament has {many} seats.",
        "Snow lies there for {few} weeks of the year.",
        "The flag shows {few} stars above a wave.",
        "Its highest pass is closed in winter.",
    ),
    "company": (
        "It employs {many} people.",
        "The firm exports to {many} countries.",
        "Its sign shows a heron.",
        "Its old works burned down and were built anew.",
    ),
    "university": (
        "Its library keeps {many} thousand books.",
        "It is known for law and medicine.",
        "The botanical garden is open to everyone.",
        "About {few} thousand students live on the campus.",
    ),
    "building": (
        "It was built of brick and took {few} years.",
        "About {many} thousand people visit it every year.",
        "A plaque at the entrance names the {many} workers.",
        "The roof was repaired after a storm.",
    ),
    "film": (
        "It was shown for {many} weeks.",
        "Critics praised its night scenes.",
        "Only {few} prints are left.",
    ),
    "novel": (
        "Readers praised its quiet ending.",
        "It has been translated into {many} languages.",
        "The first edition is rare.",
        "It tells of {few} sisters and a lost letter.",
    ),
    "opera": (
        "Its overture is often played alone.",
        "The chorus of the second act became popular.",
        "A performance lasts about {few} hours with pauses.",
        "The score is kept in an archive.",
    ),
    "painting": (
        "It shows {few} figures under a stormy sky.",
        "It was cleaned and framed anew.",
        "Experts praise its light.",
    ),
    "race": (
        "About {few} hundred people take part.",
        "The course is {many} kilometres long.",
        "The prize is a silver bowl.",
        "It was called off only once, because of fog.",
    ),
}
